"""Which messages a relay takes, so that no other relay publishes them and none overtakes another of
its key.

A *head* is the first message of its key, or one without a key. A relay locks heads and skips those
that are locked. While it holds a head no other relay starts on that key, so the messages behind the
head are its own, in order:

    position   1   2   3   4   5   6   7       relay A holds 1, so 1, 4, 5
    key        a   -   b   a   a   b   -       relay B holds 2, 3 and 7, so 2, 3, 6, 7

Heads are found by reading pages in order and without locks, not by asking the database for the
first of each key: that takes seconds at 100,000 rows with few keys. Messages that wait for their
next attempt are separate in an index, so no page consists of them, however many there are. Locks
use the primary key alone, so that InnoDB locks nothing else.

An attempt is noted before it is made, in a transaction of its own, since a death in the middle of
it undoes the other. So a relay takes messages twice: it locks them and notes the attempt
(`take()`), commits, and locks them again to publish them (`hold()`). What another relay has taken
in between is not what was noted any more, and is left to that one. A message whose attempts have
begun and not ended is a *suspect*: it was in a batch whose relay died. Suspects are taken one at a
time, so that only the one that kills is blamed for the next death.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connections
from django.db.models import BinaryField, F, Func, Q, QuerySet

from ...stores.base import utcnow
from .models import SET_ASIDE, Message

#: Rows per page, with three columns each.
PAGE = 1000
#: Seconds between two scans from the very first position. The others skip everything before the
#: first message found: rows deleted long ago, which a database may have to walk over while an old
#: snapshot is open. A position that was assigned before such a scan and committed after it waits at
#: most this long.
SWEEP = 5.0
#: The longest that a message can wait for its next attempt. One that waits longer failed on a host
#: with a fast clock.
FARTHEST = timedelta(minutes=10)

#: Seconds between looks at messages that another relay locks for an instant, to note an attempt
#: that is ours already.
INSTANTS = (0.002, 0.01, 0.05)

#: Position, key, and the time of its next attempt (`None`: it has not failed).
Row = tuple[int, str, datetime | None]
#: The id of a message, and the number of its attempts without an end.
Fence = tuple[UUID, int]


@dataclass(slots=True)
class Lanes:
    """One page, sorted: the heads that are due, and the messages behind each that has a key."""

    heads: list[int] = field(default_factory=list)
    behind: dict[str, list[int]] = field(default_factory=dict)
    #: Keys whose first message waits for its next attempt.
    waiting: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Due:
    """Is a message due at `at`? One beyond `far` failed on a host with a fast clock. `at=None`:
    first attempts only.

    One that is set aside is never due.
    """

    at: datetime | None
    far: datetime

    def __call__(self, not_before: datetime | None) -> bool:
        """Is a message due whose next attempt is at `not_before`? `None`: it has not failed."""
        if not_before is None:
            return True
        if self.at is None or not_before >= SET_ASIDE:
            return False
        return not self.at < not_before <= self.far


def sort(rows: Iterable[Row], *, due: Due) -> Lanes:
    """Sort a page of positions, keys and back-offs, in the order of positions."""
    lanes = Lanes()
    for position, key, not_before in rows:
        if key in lanes.behind:
            lanes.behind[key].append(position)
        elif key in lanes.waiting:
            continue
        elif due(not_before):
            lanes.heads.append(position)
            if key:
                lanes.behind[key] = []
        elif key:
            lanes.waiting.add(key)
    return lanes


#: A table of the positions in a parameter, for a statement that reads no other row.
_MINE = "JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT PATH '$')) AS mine"


def _fence(message: Message) -> Fence:
    """Return what is noted of a message.

    If another relay has taken it since, it counts that attempt.
    """
    return message.message_id, message.unended


class Taker:
    """Takes up to `size` messages of the database `using`, for one transaction: what is due now, or
    was at `due_at`.
    """

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
        """Can several relays take messages at once?

        If not, the one that takes them locks everything.
        """
        return self._features.has_select_for_update

    def _due(self, *, rather_new: bool = False) -> Due:
        now = utcnow()
        return Due(None if rather_new else self._due_at or now, now + FARTHEST)

    def any_due(self) -> bool:
        """Is there anything to take?"""
        return any(lanes.heads for lanes in self._pages(self._due()))

    def take(self, *, rather_new: bool = False) -> list[Message]:
        """Lock due messages, and return them in order: the first suspect alone, or those before it.

        Call it in a transaction, whose end releases the locks. `rather_new` leaves out messages
        that have failed, and those behind them, unless there is nothing else.
        """
        taken = self._due_messages(rather_new=rather_new)
        first = next((place for place, message in enumerate(taken) if message.unended), len(taken))
        return taken[: max(first, 1)]

    def hold(self, noted: Sequence[Message]) -> tuple[list[Message], list[Message]]:
        """Lock messages again whose attempt was noted.

        Return those that may be published, in order, and the rest.

        The rest are locked, too, but a message before them with their key is not ours any more:
        they would overtake it.
        """
        if not self.locks_rows:
            self._lock_everything()
        wanted = {message.pk: message for message in noted}
        locked: dict[int, Fence] = {}
        for pause in (*INSTANTS, None):
            missing = [position for position in wanted if position not in locked]
            locked |= self._fences(missing, lock=True)
            if pause is None or len(locked) == len(wanted):
                break
            missing = [position for position in wanted if position not in locked]
            # What another relay locks for an instant, to look at it, is still as it was noted.
            if not any(
                fence == _fence(wanted[place])
                for place, fence in self._fences(missing, lock=False).items()
            ):
                break
            time.sleep(pause)
        ours: list[Message] = []
        rest: list[Message] = []
        cut = set[str]()
        for position, message in wanted.items():
            if locked.get(position) != _fence(message):
                cut.add(message.key)
            elif message.key and message.key in cut:
                rest.append(message)
            else:
                ours.append(message)
        return ours, rest

    def _fences(self, positions: list[int], *, lock: bool) -> dict[int, Fence]:
        """Return what is noted now of messages, or of those that no other relay holds, which are
        locked then.
        """
        rows = (
            self.messages.filter(pk__in=positions)
            .order_by("pk")
            .values_list("pk", "message_id", "unended")
        )
        if lock:
            rows = rows.select_for_update(
                skip_locked=self._features.has_select_for_update_skip_locked
            )
        return {position: (message_id, unended) for position, message_id, unended in rows}

    def _due_messages(self, *, rather_new: bool) -> list[Message]:
        """Lock due messages, and return them in order."""
        if not self.locks_rows:
            self._lock_everything()
        return (rather_new and self._taken(self._due(rather_new=True))) or self._taken(self._due())

    def _taken(self, due: Due) -> list[Message]:
        for lanes in self._pages(due):
            heads = [head for head in self._locked(lanes.heads, self._size) if due(head.not_before)]
            if heads:
                return sorted([*heads, *self._behind(heads, lanes)], key=lambda message: message.pk)
        return []

    def _pages(self, due: Due) -> Iterator[Lanes]:
        """Read page after page.

        Keys of earlier pages are left out of the next: their heads come before it.
        """
        sweeps = self._sweeps()
        start = after = self._since
        passed = set[str]()
        left_out = set[str]()
        failed: list[Row] | None = None
        while True:
            fresh = self._fresh(after, left_out)
            if failed is None:
                page, failed = self._with_failed(fresh, due, sweeps=sweeps)
            else:
                page = list(fresh)
            if page and after == start:
                self._since = page[0][0] - 1
            last = len(page) < PAGE
            end = page[-1][0] if page else after
            # Failed messages can be anywhere, even before the first that has not failed.
            covered = 0 if after == start else after
            page += [row for row in failed if covered < row[0] and (last or row[0] <= end)]
            rows = {row[0]: row for row in [*page, *self._of_lanes(page, since=after)]}
            lanes = sort((row for _, row in sorted(rows.items()) if row[1] not in passed), due=due)
            yield lanes
            if last:
                return
            after = end
            passed |= lanes.waiting | lanes.behind.keys()
            # The others are skipped here: a longer list costs more than it saves.
            if len(left_out) < PAGE:
                left_out = set(passed)

    def _fresh(self, after: int, left_out: set[str]) -> QuerySet[Message, Row]:
        """Return the next page of messages that have never failed."""
        messages = self.messages.filter(not_before=None, pk__gt=after)
        if left_out:
            messages = self._without(messages, left_out)
        return messages.order_by("not_before", "pk").values_list("pk", "key", "not_before")[:PAGE]

    def _with_failed(
        self, fresh: QuerySet[Message, Row], due: Due, *, sweeps: bool
    ) -> tuple[list[Row], list[Row]]:
        """Read a page, and failed messages that are due: in one statement if the database can."""
        if due.at is None:
            return list(fresh), []
        again = Q(not_before__lte=due.at)
        if sweeps:
            again |= Q(not_before__gt=due.far, not_before__lt=SET_ASIDE)
        failed = (
            self.messages.filter(again)
            .order_by("not_before", "pk")
            .values_list("pk", "key", "not_before")[:PAGE]
        )
        if not self._features.supports_slicing_ordering_in_compound:
            return list(fresh), list(failed)
        rows = list(fresh.union(failed, all=True))
        return [row for row in rows if row[2] is None], [row for row in rows if row[2] is not None]

    def _of_lanes(self, page: Sequence[Row], *, since: int) -> list[Row]:
        """Return the other messages with keys of a page: those that failed, and those committed
        late.

        Up to the position `since` an earlier scan may have missed some: messages committed after
        it.
        """
        keys = {key for _, key, _ in page if key}
        if not keys:
            return []
        ours = self.messages.filter(key__in=keys).values_list("pk", "key", "not_before")
        late = ours.filter(not_before=None, pk__lte=since)
        found = (
            ours.exclude(not_before=None).union(late, all=True)
            if since
            else ours.exclude(not_before=None)
        )
        # In MariaDB's usual collations `a` equals `A`.
        rows = [row for row in found if row[1] in keys]
        if any(position <= since and not_before is None for position, _, not_before in rows):
            self._swept = float("-inf")  # take it at once
        return rows

    def _without(self, messages: QuerySet[Message], keys: set[str]) -> QuerySet[Message]:
        """Exclude keys by exact comparison.

        In MariaDB's usual collations `a` equals `A`, and would wait for it.
        """
        if connections[self._using].vendor != "mysql":
            return messages.exclude(key__in=keys)
        exact = Func("key", template="CAST(%(expressions)s AS BINARY)", output_field=BinaryField())
        return messages.alias(exact=exact).exclude(exact__in=[key.encode() for key in keys])

    def _sweeps(self) -> bool:
        """Scan from the very first position now and then. Return whether to do so now."""
        if time.monotonic() - self._swept < SWEEP:
            return False
        self._swept = time.monotonic()
        self._since = 0
        return True

    def forget(self, messages: Sequence[Message]) -> bool:
        """Delete messages that are locked here, and read no other row.

        Return `False` if some are not where they were.

        A publisher may have left the connection in another schema, where a position belongs to
        another message.

        For `id IN (…)` MariaDB reads all of a small table, and locks as it reads. Two relays would
        wait for each other, and the one that the deadlock ends would publish again. No hint
        prevents that; the order of a join does.
        """
        positions = [message.pk for message in messages]
        if not self._joins:
            ids = [message.message_id for message in messages]
            _, deleted = self.messages.filter(pk__in=positions, message_id__in=ids).delete()
            # Without what a project's CASCADE deletes.
            return deleted.get(Message._meta.label, 0) == len(positions)
        with connections[self._using].cursor() as cursor:
            cursor.execute(
                f"DELETE m FROM {_MINE} STRAIGHT_JOIN {self._table} AS m FORCE INDEX "
                "(PRIMARY) ON m.id = mine.id",
                [json.dumps(positions)],
            )
            return int(cursor.rowcount) == len(positions)

    def begin(self, messages: Sequence[Message]) -> None:
        """Note that an attempt of messages that are locked here begins.

        Its end deletes them, or is noted.
        """
        self._count(1, messages)

    def unbegin(self, messages: Sequence[Message]) -> None:
        """Note that an attempt which was to begin was not made. The messages are locked here."""
        if messages:
            self._count(-1, messages)
        for message in messages:
            if message.unended > 1:  # a suspect: it was due, and is again
                here = self.messages.filter(pk=message.pk, message_id=message.message_id)
                here.update(not_before=None)

    def _count(self, number: int, messages: Sequence[Message]) -> None:
        """Add a number to the attempts of locked messages, and to those without an end.

        Reads no other row: see forget().
        """
        positions = [message.pk for message in messages]
        if not self._joins:
            here = self.messages.filter(pk__in=positions)
            here.update(attempts=F("attempts") + number, unended=F("unended") + number)
            return
        with connections[self._using].cursor() as cursor:
            ours = (
                f"{_MINE} STRAIGHT_JOIN {self._table} AS m FORCE INDEX (PRIMARY) ON m.id = mine.id"
            )
            change = "SET m.attempts = m.attempts + %s, m.unended = m.unended + %s"
            cursor.execute(f"UPDATE {ours} {change}", [json.dumps(positions), number, number])

    def note(self, message: Message) -> bool:
        """Write what is known of a message that is locked here.

        Return `False` if it is not where it was.
        """
        here = self.messages.filter(pk=message.pk, message_id=message.message_id)
        changed = here.update(
            attempts=message.attempts,
            last_error=message.last_error,
            not_before=message.not_before,
            unended=message.unended,
        )
        return bool(changed)

    @property
    def _joins(self) -> bool:
        """Must a statement join its positions, so that it reads no other row? See forget()."""
        return connections[self._using].vendor == "mysql" and bool(
            self._features.has_select_for_update_skip_locked
        )

    @property
    def _table(self) -> str:
        """The table, in our database, whatever `USE` has chosen."""
        connection = connections[self._using]
        names = connection.settings_dict["NAME"], Message._meta.db_table
        # The driver replaces %s.
        return ".".join(map(connection.ops.quote_name, names)).replace("%", "%%")

    # ---------------------------------------------------------------------------------------- locks

    def _locked(self, positions: list[int], most: int) -> list[Message]:
        """Lock the rows that no other relay holds, and return them as they are now."""
        if not positions:
            return []
        skips = self._features.has_select_for_update_skip_locked
        wanted = self.messages.filter(pk__in=positions).order_by("pk")
        return list(wanted.select_for_update(skip_locked=skips)[:most])

    def _behind(self, heads: list[Message], lanes: Lanes) -> Iterator[Message]:
        """Lock the messages behind heads that are held, up to the first gap."""
        wanted = sorted(position for head in heads for position in lanes.behind.get(head.key, ()))
        locked = {message.pk: message for message in self._locked(wanted, self._size - len(heads))}
        for head in heads:
            for position in lanes.behind.get(head.key, ()):
                if position not in locked:
                    break
                yield locked[position]

    def _lock_everything(self) -> None:
        """Take SQLite's write lock before reading anything: taken after a read, it would be refused
        at once.
        """
        with connections[self._using].cursor() as cursor:
            cursor.execute(f"UPDATE {Message._meta.db_table} SET attempts = attempts WHERE 0 = 1")  # noqa: S608
