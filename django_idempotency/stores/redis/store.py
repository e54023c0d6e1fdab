"""Records in Redis, at a URL or in the server of a cache."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.checks import CheckMessage
from django.views.decorators.debug import sensitive_variables

from ...core import interventions, rules
from ...core.conclusions import claimed, handover, unchanged
from ...core.hashing import first_operation
from ...core.records import Guarantee, Record, Settlement, Status, Ticket
from ...errors import LostRace, RecordUnreadable, StoreUnavailable
from ..base import BaseStore, Purged, Scanned, without_body
from ..key_value import packing, signing
from ..key_value.options import refuse_timeout
from .checks import check_place, check_server
from .client import Call, NotReplicated, RedisClient
from .connecting import settings_of

#: An option that is not given. `None` and "" are mistakes, as of an unset variable.
NOT_GIVEN = "not given"
_PREFIX = re.compile(r"\S(.*\S)?")
#: An address as redis-py reads it, in which nothing of a password can be taken for something else.
_URL = re.compile(
    r"rediss?://([^/?#@]*@)?([\w.%-]*|\[[\da-fA-F:.]+\])(:\d+)?(/\d*)?(\?[^#]*)?"
    r"|unix://([^/?#@]*@)?/[^?#]+(\?[^#]*)?"
)
#: Records in one trip of a scan: each comes whole, with a body of up to 1 MiB.
LONGEST_BATCH = 50


class RedisStore(BaseStore):
    """What Redis can lose, this store loses, and then the work runs a second time.

    That is: up to a second of writes at a crash under `appendfsync everysec`, all of them without
    AOF, what was not replicated at a failover, and whatever is evicted under another
    `maxmemory-policy` than `noeviction`. So there is no `atomic` here. Pass on the keys of
    `derive()`, which follow from the key even if its record was lost.

    Records are at `url`, or in the server of the cache `cache` of CACHES: Django's own RedisCache,
    django-redis's or django-valkey's. One value per key, no pickle. Each verb is one step on one
    key (cluster safe) and one round trip, by the server's clock, fenced by the owner token. Redis
    deletes expired records. `timeout` (seconds) limits each connection and each response. With
    `min_replicas`, a claim counts only once that many replicas have it (WAIT), which narrows the
    gap at a failover but does not close it.

    Every value carries an HMAC of SECRET_KEY. Without a valid one it reads as absent, so an
    attacker who can write to Redis cannot invent a response. The HMAC covers neither the deadlines
    nor the place of a value. So they can make a key forget, keep it busy, or restore an older
    record of the same key or one of another prefix: a response that was released or has expired may
    be replayed. Keep an old secret in SECRET_KEY_FALLBACKS for as long as your `ttl`.
    """

    expires_natively = True

    def __init__(
        self,
        *,
        url: str = NOT_GIVEN,
        cache: str = NOT_GIVEN,
        prefix: str = "idempotency",
        timeout: float = 0.4,
        min_replicas: int = 0,
    ) -> None:
        refuse_timeout(timeout, usual=0.4)
        _refuse(prefix, min_replicas)
        self.place = _place(url, cache)
        self.prefix = prefix
        self._client = RedisClient(self.place, timeout=timeout, min_replicas=min_replicas)

    def check(
        self, alias: str, *, deploy: bool = False, copies_only: bool = False
    ) -> Iterator[CheckMessage]:
        if deploy:
            yield from check_server(alias, self.about(), copies_only=copies_only)
        else:
            yield from check_place(alias, self.place)

    @property
    def location(self) -> Hashable:
        given = settings_of(self.place)
        if not given:
            return self
        # The same name at another Sentinel, or with another database beside the address, is another
        # server.
        server = (given.get("LOCATION"), given.get("OPTIONS"))
        return str(server), self._client.name(self.prefix)

    # ---------------------------------------------------------------------------------------- claim

    def claim(self, ticket: Ticket) -> Record:
        runs: list[rules.Execute] = []
        try:
            return self._claimed(ticket, runs)
        except NotReplicated:
            with suppress(StoreUnavailable):
                self._undo(ticket, runs)
            raise

    def _claimed(self, ticket: Ticket, runs: list[rules.Execute]) -> Record:
        """Insert a record, or find the one that is there, and take that over.

        Adds each takeover to `runs`, to undo it.
        """
        operation = first_operation(ticket)
        name = self._name(ticket.id)
        run: rules.Execute | None = None
        head = packing.pack_head(Status.RUNNING, ticket.owner, 1, ticket.digest)
        given = _signed(
            ticket, head, packing.pack_life(ticket, operation), lease=ticket.lease, ttl=ticket.ttl
        )
        for tries_left in range(3, -1, -1):
            now, found = packing.clocked(self._client.ask(Call("claim", name, (given,), _inserted)))
            if not found:
                return _taken(rules.born(ticket, now, operation), run)
            record = signing.unsign(found, ticket.id, now)
            if record is not None and rules.owned(record, ticket):
                if self._client.min_replicas:
                    # WAIT covers what its own connection has written.
                    self._client.ask(self._renewal(ticket))
                return _taken(record, run)
            if record is not None and (
                ticket.guarantee is Guarantee.ATOMIC or not rules.takeable(record, ticket)
            ):
                return record
            if not tries_left:
                break
            if record is None:  # not ours, or forged: as if it were not there
                self._client.ask(Call("drop", name, (found,)))
                continue
            run = rules.succession(record)
            runs.append(run)
            begins = rules.operation_of(record, run)
            taking = handover(record, ticket)._replace(
                attempt=run.attempt, operation=begins, new_life=run.new_life
            )
            life = packing.pack_life(ticket if run.new_life else record, begins)
            since = self._change(ticket, taking, life, f"{record.status:d}", str(record.attempt))
            if since is not None:
                return claimed(ticket, record, since)
        raise LostRace

    def _undo(self, ticket: Ticket, runs: Sequence[rules.Execute]) -> None:
        """Give up a record that this ticket has claimed and must not use.

        A crashed owner's record is a takeover again.

        What an earlier try of this ticket took is unknown, so then it is treated as a takeover,
        too.
        """
        record = self.get(ticket.id)
        if (
            record is None
            or not rules.owned(record, ticket)
            or (freed := interventions.released(record)) is None
        ):
            return
        if record.attempt > 1 and (not runs or runs[-1].takeover):
            lapsed = unchanged(record)._replace(status=Status.RUNNING, lease_in=0)
            self._change(ticket, lapsed, packing.pack_life(record, record.operation))
        else:
            self.settle(ticket, freed)

    # -------------------------------------------------------------------------------- settle, renew

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """See BaseStore.settle().

        If too few replicas have the write, raises `StoreUnavailable` although it was made.

        A retry writes the same again, and succeeds when the replicas are back. If they are not back
        in time, the call is reported as `lost` although its response is replayed. `min_replicas`
        asks for that: a failover would bring the claim back, and run the work again.
        """
        life = packing.pack_life(ticket, settlement.operation)
        return self._change(ticket, settlement, life) is not None

    def _change(
        self, ticket: Ticket, settlement: Settlement, life: bytes, *seen: bytes | str
    ) -> datetime | None:
        """Write the record if `fence` still owns it, and return the server's clock; `None` if it
        has changed.

        `life` is what the record was born with, or a guess: that of this ticket. A wrong guess
        (another path or secret at an earlier attempt) costs one more trip. For a takeover `seen`
        are its status and its attempt, which it must still have.
        """
        head = packing.pack_head(
            settlement.status, ticket.owner, settlement.attempt, settlement.digest
        )
        outcome = packing.pack_outcome(settlement.outcome)
        new_life = "1" if settlement.new_life else ""
        seen = (settlement.fence.bytes, *seen)
        for _ in range(3):
            given = _signed(
                ticket, head, life, outcome, lease=settlement.lease_in, ttl=settlement.expires_in
            )
            answer = self._client.ask(
                Call("change", self._name(ticket.id), (given, new_life, *seen), wrote=_changed)
            )
            if not _changed(answer):
                if answer is None or signing.unsign(answer, ticket.id, ticket.now) is None:
                    return None
                life = packing.life(answer)
                continue
            now, _ = packing.clocked(answer)
            return now
        return None

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        """See BaseStore.renew().

        If a node is down, raises; the error's `renewed` has the tokens of the others.
        """
        answers, away = self._client.ask_all([self._renewal(ticket) for ticket in tickets])
        owners = {ticket.owner for ticket, renewed in zip(tickets, answers, strict=True) if renewed}
        if away is not None:
            away.renewed = owners
            raise away
        return owners

    def _renewal(self, ticket: Ticket) -> Call:
        given = (ticket.owner.bytes, str(packing.span(ticket.lease)))
        return Call("renew", self._name(ticket.id), given, wrote=bool)

    # ----------------------------------------------------------------------------------- get, purge

    def get(self, record_id: UUID) -> Record | None:
        return self._get(self._name(record_id), record_id)

    def _get(self, name: str, record_id: UUID) -> Record | None:
        now, found = packing.clocked(self._client.ask(Call("get", name)))
        return signing.unsign(found, record_id, now)

    def scan(self, *, size: int = 1000, bodies: bool = False) -> Iterator[Scanned]:
        """See BaseStore.scan().

        By SCAN, which walks all keys of the server, also those of others.
        """
        for names in self._client.named(
            self._name_of(""), digits=32, size=min(size, LONGEST_BATCH)
        ):
            answers, away = self._client.ask_all([Call("get", name) for name in names])
            if away is not None:
                raise away
            yield self._scanned(names, answers, bodies=bodies)

    def _scanned(self, names: Sequence[str], answers: Sequence[bytes], *, bodies: bool) -> Scanned:
        records = list[Record]()
        unreadable = 0
        for name, answer in zip(names, answers, strict=True):
            now, found = packing.clocked(answer)
            if not found:  # it has expired since
                continue
            record: Record | None = None
            with suppress(RecordUnreadable, ValueError):
                record = signing.unsign(found, UUID(name[-32:]), now)
            if record is None:
                unreadable += 1
            else:
                records.append(record if bodies else without_body(record))
        return Scanned(records=records, unreadable=unreadable)

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        """Do nothing: Redis deletes what has expired."""
        return Purged(count=0, resume=None)

    def about(self) -> dict[str, Any]:
        """Return the server's INFO, for people and tools."""
        return self._client.about()

    # ----------------------------------------------------------------------------------- as a front

    def peek(self, record_id: UUID) -> Record | None:
        """Return the copy that put() kept, as a front of a layered store; `None` if it cannot be
        read. One trip.
        """
        with suppress(RecordUnreadable):
            return self._get(self._front_name(record_id), record_id)
        return None

    def put(self, record: Record, *, seconds: float) -> None:
        """Keep a copy of a record for `seconds`, as a front.

        It is not a claim, and this store's claims do not see it.

        The deadlines of the copy are as far away as the record's were at its `read_at`, whichever
        clock that was.
        """
        given = (
            signing.sign_record(record),
            packing.clock(record.read_at),
            str(max(1, int(seconds * 1000))),
        )
        self._client.ask(Call("put", self._front_name(record.id), given))

    def drop(self, record_id: UUID) -> None:
        """Forget the copy that put() kept."""
        self._client.delete(self._front_name(record_id))

    # ------------------------------------------------------------------------------------- plumbing

    def _name(self, record_id: UUID) -> str:
        return self._name_of(record_id.hex)

    def _name_of(self, digits: str) -> str:
        return self._client.name(f"{self.prefix}:{digits}")

    def _front_name(self, record_id: UUID) -> str:
        return self._name_of(f"front:{record_id.hex}")


def _inserted(answer: Any) -> bool:
    return not packing.clocked(answer)[1]  # otherwise it is the existing record


def _changed(answer: Any) -> bool:
    return answer is not None and len(answer) == packing.CLOCK  # otherwise it is the current record


def _taken(record: Record, run: rules.Execute | None) -> Record:
    """Return a record that is ours since a try whose response was lost; `run` is what that
    tried.
    """
    return record if run is None else record._replace(taken=run.takeover)


def _signed(
    ticket: Ticket,
    head: bytes,
    life: bytes,
    outcome: bytes = b"",
    *,
    lease: float | None,
    ttl: float | None,
) -> bytes:
    body = head + life + packing.pack_request_id(ticket.request_id) + outcome
    signature = signing.sign(packing.signature_input(ticket.id, body))
    return packing.unwritten(signature, body, lease=lease, retention=ttl)


@sensitive_variables("url")
def _place(url: Any, cache: Any) -> str:
    """Return the place that the options name. Raises `ValueError` for invalid ones."""
    if NOT_GIVEN not in (url, cache):
        raise ValueError('"url" and "cache" are both given. Leave one of them out.')
    if url != NOT_GIVEN:
        if not isinstance(url, str) or not _URL.fullmatch(url):
            raise ValueError(
                '"url" is an address such as "redis://:password@127.0.0.1:6379/1", or of rediss:// '
                'or unix://, with "%2F" for a "/" in a password; not this one, which may have a '
                "password."
            )
        return url
    if not isinstance(cache, str) or not cache:
        raise ValueError(f'"cache" is an alias of CACHES, such as "default"; not {cache!r}.')
    return "default" if cache == NOT_GIVEN else cache


def _refuse(prefix: Any, min_replicas: Any) -> None:
    """Raise `ValueError` for invalid options, before a request does."""
    if (
        not isinstance(prefix, str)
        or not prefix.isprintable()
        or prefix.strip() != (prefix or None)
    ):
        raise ValueError(
            f'"prefix" is how the names of keys begin, such as "idempotency"; not {prefix!r}.'
        )
    if type(min_replicas) is not int or min_replicas < 0:
        raise ValueError(
            f'"min_replicas" is a number of replicas, 0 or more; not {min_replicas!r}.'
        )
