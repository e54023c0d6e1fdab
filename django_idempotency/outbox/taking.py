"""Which messages a relay takes, so that nobody else publishes them and none overtakes another of its key.

A *head* is the first message of its key, or one without a key. A relay locks heads and skips those that are locked.
While it holds a head nobody else starts on that key, so what stands behind the head is its own, in order:

    position   1   2   3   4   5   6   7       relay A holds 1, so 1, 4, 5
    key        a   -   b   a   a   b   -       relay B holds 2, 3 and 7, so 2, 3, 6, 7

Heads are found by reading pages in order and without locks, and not by asking the database for the first of each key:
that is seconds at 100,000 rows with few keys. Locks go by primary key alone, so that InnoDB locks nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from django.db import connections
from django.db.models import BinaryField, Func, QuerySet

from ..stores.base import utcnow
from .models import Message

#: Rows that are looked at together: three columns of them.
PAGE = 1000
#: Seconds between two looks from the very first position. Between them what lies before the first message that was
#: there is left out: rows deleted long ago, which a database may have to walk over while an old snapshot is open.
#: A position that was given before the look and committed after it waits so long at most.
SWEEP = 5.0
#: As of when nothing is due that waits for its next attempt.
_NEVER = datetime.min.replace(tzinfo=timezone.utc)


@dataclass(slots=True)
class Lanes:
    """One page, sorted: the heads that are due, and what stands behind each that has a key."""

    heads: list[int] = field(default_factory=list)
    behind: dict[str, list[int]] = field(default_factory=dict)
    #: Keys whose first message waits for its next attempt.
    waiting: set[str] = field(default_factory=set)
    #: What lies up to this position was not looked at together with this page.
    since: int = 0


def sort(rows: Iterable[tuple[int, str, datetime | None]], *, now: datetime) -> Lanes:
    """Sort a page of positions, keys and back-offs, in the order of positions."""
    lanes = Lanes()
    for position, key, not_before in rows:
        if key in lanes.behind:
            lanes.behind[key].append(position)
        elif key in lanes.waiting:
            continue
        elif not_before is None or not_before <= now:
            lanes.heads.append(position)
            if key:
                lanes.behind[key] = []
        elif key:
            lanes.waiting.add(key)
    return lanes


class Taker:
    """Takes up to `size` messages of the database `using`, for one transaction: what is due now, or was at `due_at`."""

    def __init__(self, *, using: str, size: int, due_at: datetime | None = None) -> None:
        self._using = using
        self._size = size
        self._due_at = due_at
        self._features = connections[using].features
        self._since = 0
        self._swept = float("-inf")

    @property
    def messages(self) -> QuerySet[Message]:
        return Message.objects.using(self._using)

    @property
    def locks_rows(self) -> bool:
        """Can several take at once? Where not, whoever takes holds everything."""
        return self._features.has_select_for_update

    @property
    def _now(self) -> datetime:
        return self._due_at or utcnow()

    def any_due(self) -> bool:
        return any(lanes.heads for lanes in self._pages(self._now))

    def take(self, *, rather_new: bool = False) -> list[Message]:
        """Lock what is due and return it in order. To be called in a transaction, whose end is the end of the locks.

        `rather_new` leaves out what has failed before, and what waits behind it, unless there is nothing else.
        """
        if not self.locks_rows:
            self._lock_everything()
        return (rather_new and self._taken(_NEVER)) or self._taken(self._now)

    def _taken(self, now: datetime) -> list[Message]:
        for lanes in self._pages(now):
            heads = [head for head in self._locked(lanes.heads, self._size) if _due(head, now)]
            heads = self._first(heads, since=lanes.since)
            if heads:
                return sorted([*heads, *self._behind(heads, lanes)], key=lambda message: message.pk)
        return []

    def _pages(self, now: datetime) -> Iterator[Lanes]:
        """Read page after page. Keys that were met on one are left out of the next: their heads stand before it."""
        start, passed, left_out = self._start(), set[str](), set[str]()
        after = start
        while True:
            messages = self.messages.filter(pk__gt=after)
            if left_out:
                messages = self._without(messages, left_out)
            rows = list(messages.order_by("pk").values_list("pk", "key", "not_before")[:PAGE])
            if rows and after == start:
                self._since = rows[0][0] - 1
            lanes = sort((row for row in rows if row[1] not in passed), now=now)
            lanes.since = after
            yield lanes
            if len(rows) < PAGE:
                return
            after = rows[-1][0]
            passed |= lanes.waiting | lanes.behind.keys()
            if len(left_out) < PAGE:  # the rest is left out here: a longer list costs more than it saves
                left_out = set(passed)

    def _without(self, messages: QuerySet[Message], keys: set[str]) -> QuerySet[Message]:
        """Leave out keys as Python tells them apart. For a collation of MariaDB `a` is `A`, and would wait for it."""
        if connections[self._using].vendor != "mysql":
            return messages.exclude(key__in=keys)
        exact = Func("key", template="CAST(%(expressions)s AS BINARY)", output_field=BinaryField())
        return messages.alias(exact=exact).exclude(exact__in=[key.encode() for key in keys])

    def _start(self) -> int:
        if time.monotonic() - self._swept < SWEEP:
            return self._since
        self._swept, self._since = time.monotonic(), 0
        return 0

    def forget(self, positions: Sequence[int]) -> None:
        """Delete what is locked here, looking at no other row.

        For `id IN (…)` MariaDB reads all of a small table, and locks as it reads: two relays would wait for each other,
        and the one that the deadlock ends publishes again. No hint keeps it from that; the order of a join does.
        """
        connection = connections[self._using]
        if connection.vendor != "mysql" or not self._features.has_select_for_update_skip_locked:
            self.messages.filter(pk__in=positions).delete()
            return
        table = connection.ops.quote_name(Message._meta.db_table)
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE m FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT PATH '$')) AS mine "
                f"STRAIGHT_JOIN {table} AS m FORCE INDEX (PRIMARY) ON m.id = mine.id",
                [json.dumps(positions)],
            )

    # --------------------------------------------------------------------------------------------------------- locks

    def _locked(self, positions: list[int], most: int) -> list[Message]:
        """Lock what nobody else holds, and return it as it is now."""
        if not positions:
            return []
        skips = self._features.has_select_for_update_skip_locked
        wanted = self.messages.filter(pk__in=positions).order_by("pk")
        return list(wanted.select_for_update(skip_locked=skips)[:most])

    def _first(self, heads: list[Message], *, since: int) -> list[Message]:
        """Leave out heads that are none: an earlier one of their key was committed after we had looked where it stands."""
        keys = {head.key for head in heads if head.key}
        if not since or not keys or not self.locks_rows:
            return heads
        overtaken = set(self.messages.filter(key__in=keys, pk__lte=since).values_list("key", flat=True))
        if overtaken:
            self._swept = float("-inf")  # find it at once
        return [head for head in heads if head.key not in overtaken]

    def _behind(self, heads: list[Message], lanes: Lanes) -> Iterator[Message]:
        """Lock what stands behind heads that are held, as far as there is no gap."""
        wanted = sorted(position for head in heads for position in lanes.behind.get(head.key, ()))
        locked = {message.pk: message for message in self._locked(wanted, self._size - len(heads))}
        for head in heads:
            for position in lanes.behind.get(head.key, ()):
                if position not in locked:
                    break
                yield locked[position]

    def _lock_everything(self) -> None:
        """Take SQLite's write lock before anything is read: a lock for later would be refused at once."""
        with connections[self._using].cursor() as cursor:
            cursor.execute(f"UPDATE {Message._meta.db_table} SET attempts = attempts WHERE 0 = 1")  # noqa: S608


def _due(head: Message, now: datetime) -> bool:
    """Is it still due? Between the look and the lock another relay may have tried it in vain."""
    return head.not_before is None or head.not_before <= now
