"""Records in Redis, through django-redis."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from ..core import payload, rules
from ..core.records import Guarantee, Record, Settlement, Status, Ticket
from ..errors import LostRace, StoreUnavailable
from . import sealing
from .base import BaseStore, Purged
from .redis_client import Call, NotReplicated, RedisClient, script

CLAIM, CHANGE, RENEW, LOOK, DROP = map(script, ("claim", "change", "renew", "look", "drop"))

#: Seconds. A request that waited longer for one answer has lost its client.
MAX_TIMEOUT = 60
T = TypeVar("T")
#: What a verb asks of the server, and is answered, until it returns. Sync and async verbs drive the same ones.
Talk = Generator[Call, Any, T]


class RedisStore(BaseStore):
    """Records in Redis, in the cache `cache` of CACHES, which must be django-redis's. One value a key, no pickle.

    What Redis can lose, this loses, and then the work runs a second time: up to a second of writes at a crash under
    `appendfsync everysec`, all of them without AOF, what was not replicated at a failover, and whatever is evicted
    under another `maxmemory-policy` than `noeviction`. So there is no `atomic` here; send the keys of `derive()` on.

    Each verb is one step on one key (cluster safe) and one round trip, by the server's clock, fenced by the owner
    token. Redis deletes what has expired. `timeout` (seconds) bounds each connection and each answer. `min_replicas`
    makes a claim count only once so many replicas have it (WAIT), which narrows the gap at a failover and does not
    close it.

    What is read carries an HMAC of SECRET_KEY, without which it reads as absent: who can write to Redis can make a key
    forget, but cannot forge an answer. Keep an old secret in SECRET_KEY_FALLBACKS for as long as your `ttl`.
    """

    expires_natively = True

    def __init__(
        self, *, cache: str = "default", prefix: str = "idempotency", timeout: float = 0.4, min_replicas: int = 0
    ) -> None:
        _refuse(cache=cache, prefix=prefix, timeout=timeout, min_replicas=min_replicas)
        self.cache = cache
        self.prefix = prefix
        self._client = RedisClient(cache, timeout=timeout, min_replicas=min_replicas)

    # -------------------------------------------------------------------------------------------------------- claim

    def claim(self, ticket: Ticket) -> Record:
        try:
            return self._talk(self._claim(ticket))
        except NotReplicated:
            with suppress(StoreUnavailable):
                self._talk(self._undo(ticket))
            raise

    async def aclaim(self, ticket: Ticket) -> Record:
        """See claim()."""
        try:
            return await self._atalk(self._claim(ticket))
        except NotReplicated:
            with suppress(StoreUnavailable):
                await self._atalk(self._undo(ticket))
            raise

    def _claim(self, ticket: Ticket) -> Talk[Record]:
        name = self._name(ticket.id)
        for _ in range(3):
            record = yield from self._insert_or_read(name, ticket)
            if record is None:
                continue
            if ticket.guarantee is Guarantee.ATOMIC or not rules.takeable(record, ticket):
                return record
            run = rules.succession(record)
            seen = payload.pack_head(record.status, record.owner, record.attempt)
            answer = yield self._change(
                name, ticket, seen, status=Status.RUNNING, attempt=run.attempt, digest=ticket.digest,
                life=run.new_life, lease=ticket.lease, ttl=ticket.ttl,
            )  # fmt: skip
            if answer is not None:
                read_at, taken = payload.clocked(answer)
                return replace(payload.unpack(taken, ticket.id, read_at), taken=run.takeover)
        raise LostRace

    def _undo(self, ticket: Ticket) -> Talk[None]:
        """Free a record that this ticket has claimed, and must not use."""
        record = yield from self._look(self._name(ticket.id), ticket.id)
        if record is not None and rules.owned(record, ticket) and (freed := rules.released(record)) is not None:
            yield from self._settle(ticket, freed)

    def _insert_or_read(self, name: str, ticket: Ticket) -> Talk[Record | None]:
        head, digest = payload.pack_head(Status.RUNNING, ticket.owner, 1), payload.pack_digest(ticket.digest)
        seal = sealing.seal(payload.signed(ticket.id, head, digest, b""))
        given = payload.pack_spans(ticket.lease, ticket.ttl) + seal + head + digest + payload.pack_life(ticket)
        now, found = payload.clocked((yield Call(CLAIM, name, (given,), wrote=_inserted)))
        if not found:
            return rules.born(ticket, now)
        record = sealing.opened(found, ticket.id, now)
        if record is None:  # not ours, or forged: as if it were not there
            yield Call(DROP, name, (found,))
        return record

    # ------------------------------------------------------------------------------------------------ settle, renew

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        return self._talk(self._settle(ticket, settlement))

    async def asettle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """See settle()."""
        return await self._atalk(self._settle(ticket, settlement))

    def _settle(self, ticket: Ticket, settlement: Settlement) -> Talk[bool]:
        answer = yield self._change(
            self._name(ticket.id), ticket, settlement.fence.bytes, status=settlement.status, attempt=settlement.attempt,
            digest=settlement.digest, life=settlement.new_life, ttl=settlement.expires_in,
            outcome=payload.pack_outcome(settlement.outcome),
        )  # fmt: skip
        return answer is not None

    def _change(
        self,
        name: str,
        ticket: Ticket,
        seen: bytes,
        *,
        status: Status,
        attempt: int,
        digest: bytes,
        life: bool,
        lease: float | None = None,
        ttl: float | None = None,
        outcome: bytes = b"",
    ) -> Call:
        head, packed = payload.pack_head(status, ticket.owner, attempt), payload.pack_digest(digest)
        seal = sealing.seal(payload.signed(ticket.id, head, packed, outcome))
        given = payload.pack_spans(lease, ttl) + seal + head + packed
        kept = payload.pack_life(ticket) if life else b""
        return Call(CHANGE, name, (seen, given, kept, outcome), wrote=_changed)

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        calls = [
            Call(RENEW, self._name(ticket.id), (ticket.owner.bytes, str(round(ticket.lease * 1_000_000))))
            for ticket in tickets
        ]
        return {ticket.owner for ticket, renewed in zip(tickets, self._client.ask_all(calls), strict=True) if renewed}

    # ---------------------------------------------------------------------------------------------------- look, purge

    def look(self, record_id: UUID) -> Record | None:
        return self._talk(self._look(self._name(record_id), record_id))

    def _look(self, name: str, record_id: UUID) -> Talk[Record | None]:
        now, found = payload.clocked((yield Call(LOOK, name)))
        return sealing.opened(found, record_id, now) if found else None

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        """Do nothing: Redis deletes what has expired."""
        return Purged(count=0, resume=None)

    def about(self) -> dict[str, Any]:
        """Return what the server says of itself (INFO), for people and tools."""
        return self._client.about()

    # ------------------------------------------------------------------------------------------------------- as a front

    def peek(self, record_id: UUID) -> Record | None:
        """Return what put() has kept, as a front of a layered store. One trip."""
        return self._talk(self._look(self._front_name(record_id), record_id))

    async def apeek(self, record_id: UUID) -> Record | None:
        """See peek()."""
        return await self._atalk(self._look(self._front_name(record_id), record_id))

    def put(self, record: Record, *, seconds: float) -> None:
        """Keep a copy of a record for so long, as a front. It is no claim, and no claim of this store sees it."""
        self._client.put(self._front_name(record.id), sealing.sealed(record), seconds)

    def drop(self, record_id: UUID) -> None:
        """Forget what put() has kept."""
        self._client.delete(self._front_name(record_id))

    # ------------------------------------------------------------------------------------------------------ plumbing

    def _name(self, record_id: UUID) -> str:
        return self._client.name(f"{self.prefix}:{record_id.hex}")

    def _front_name(self, record_id: UUID) -> str:
        return self._client.name(f"{self.prefix}:front:{record_id.hex}")

    def _talk(self, talk: Talk[T]) -> T:
        reply = None
        try:
            while True:
                reply = self._client.ask(talk.send(reply))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def _atalk(self, talk: Talk[T]) -> T:
        reply = None
        try:
            while True:
                reply = await self._client.aask(talk.send(reply))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def _inserted(answer: Any) -> bool:
    return not payload.clocked(answer)[1]  # otherwise it is what was there


def _changed(answer: Any) -> bool:
    return answer is not None


def _refuse(*, cache: Any, prefix: Any, timeout: Any, min_replicas: Any) -> None:
    """Raise `ValueError` for what makes no sense, before a request finds out."""
    if not isinstance(cache, str) or not cache:
        raise ValueError(f'"cache" is an alias of CACHES, such as "default"; not {cache!r}.')
    if not isinstance(prefix, str) or not prefix.isprintable() or prefix.strip() != prefix or not prefix:
        raise ValueError(f'"prefix" is how the names of keys begin, such as "idempotency"; not {prefix!r}.')
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= MAX_TIMEOUT:
        raise ValueError(f'"timeout" is seconds, above 0 and at most {MAX_TIMEOUT}, such as 0.4; not {timeout!r}.')
    if isinstance(min_replicas, bool) or not isinstance(min_replicas, int) or min_replicas < 0:
        raise ValueError(f'"min_replicas" is a number of replicas, 0 or more; not {min_replicas!r}.')
