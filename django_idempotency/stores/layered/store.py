"""A store with a cache in front, which answers for finished and busy records.

The store decides everything else.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import ClassVar
from uuid import UUID

from ...core import rules
from ...core.conclusions import settled as settled_record
from ...core.interventions import Intervention, Wanted
from ...core.records import Record, Settlement, Status, Ticket
from ..base import Audit, BaseStore, Guard
from ..wrapper import WrappedStore
from .caches import CircuitBreaker, RecordCache

logger = logging.getLogger("django_idempotency")

#: Seconds that a busy marker lives, at most: CLAIM_LEASE's default, after which a dead worker's key
#: may be taken over. Where the setting is shorter, so is the marker's life: the registry passes it
#: to `configure()`.
MARKER = 1.0
#: Seconds after which a copy is too old to be put: an operator may have changed the record
#: meanwhile.
FRESH = 1.0
#: How many claims with work under way are remembered. Forgetting one costs the first replay a trip.
UNDER_WAY = 4096


@dataclass(frozen=True, slots=True)
class _Copy:
    """A record, the host's monotonic time when it was requested, and how many seconds a copy of it
    may be kept.
    """

    record: Record
    asked: float
    longest: float


class LayeredStore(WrappedStore):
    """The `authority` alone decides which request runs. The `front` answers what needs no decision:
    replays, "busy".

    A front that is lost, flushed, frozen or restarted only costs speed: the authority answers
    instead. With an ORM store as the authority, `atomic` is unchanged. A copy of a response is put
    into the front after the authority's COMMIT, and lives for at most `seconds`, never beyond the
    record's expiry; a busy marker for a second, or CLAIM_LEASE if that is shorter.

    What it cannot see: an operator's release drops the copy from the front, but a worker that read
    the response before the release and then stalled may put it there afterwards. A worker puts
    nothing that is over a second old, so it must have stalled between reading its clock and
    sending. Such a copy lasts for `seconds`; a second release drops it.

    A Redis front signs copies with an HMAC of SECRET_KEY, so an attacker who can write there cannot
    invent a response. They can restore an older one of the same key, copy one from another prefix,
    or extend its life: what was released or has expired may be replayed.
    """

    nested: ClassVar[tuple[str, ...]] = ("front", "authority")

    def __init__(
        self,
        *,
        front: RecordCache,
        authority: BaseStore,
        seconds: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(authority, BaseStore):
            raise TypeError(f"authority must be a BaseStore, not {type(authority).__name__}.")
        if not isinstance(front, RecordCache):
            raise TypeError(
                f"front must be a RecordCache, not {type(front).__name__}: it has no "
                "peek(), put() or drop()."
            )
        super().__init__(authority)
        self.front = CircuitBreaker(front, clock=clock)
        #: Returns the longest life of a busy marker, in seconds; read at each use.
        self.claim_lease: Callable[[], float] = lambda: MARKER
        self._seconds = seconds
        self._clock = clock
        #: By the integer of the owner token, of which one thread knows: so it needs no lock.
        self._under_way: OrderedDict[int, _Copy] = OrderedDict()

    def configure(self, *, claim_lease: Callable[[], float]) -> None:
        super().configure(claim_lease=claim_lease)
        self.claim_lease = claim_lease

    # ---------------------------------------------------------------------------------------- claim

    def claim(self, ticket: Ticket) -> Record:
        known = self.front.peek(ticket.id)
        if known is not None and rules.answerable_from_copy(known, ticket):
            return known
        asked = self._clock()
        record = self.store.claim(ticket)
        copy = self._copy(ticket, record, asked)
        if copy is not None:
            self._put(copy)
        return record

    def _copy(self, ticket: Ticket, record: Record, asked: float) -> _Copy | None:
        """Return the copy that the front may keep of the authority's record, and note what the
        settle will need.
        """
        # Only the owner puts a busy marker: it knows when that ends.
        if rules.answerable_from_copy(record, ticket):
            # In a caller's open transaction the record may come from an old snapshot.
            fit = record.status is Status.COMPLETED and not record.joined
            return _Copy(record, asked, self._seconds) if fit else None
        if not (rules.owned(record, ticket) or rules.takeable(record, ticket)):
            return None  # no run, so no settle
        self._under_way[ticket.owner.int] = _Copy(
            record._replace(outcome=None), asked, self._seconds
        )
        if len(self._under_way) > UNDER_WAY:
            with suppress(KeyError):  # others have settled all of them
                self._under_way.popitem(last=False)
        if not self.front.local and rules.owned(record, ticket) and not record.joined:
            return _Copy(record._replace(taken=False), asked, min(MARKER, self.claim_lease()))
        return None

    # --------------------------------------------------------------------------------------- settle

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        began = self._clock()
        settled = self.store.settle(ticket, settlement)
        if settled:
            self._after_commit(ticket, settlement, began)
        return settled

    def commit(self, guard: Guard, ticket: Ticket, settlement: Settlement) -> bool:
        began = self._clock()
        try:
            return self.store.commit(guard, ticket, settlement)
        finally:
            if guard.committed:  # also if only a callback of the COMMIT has failed
                self._after_commit(ticket, settlement, began)

    def _after_commit(self, ticket: Ticket, settlement: Settlement, began: float) -> None:
        self.store.after_commit(partial(self._committed, ticket, settlement, began))

    def _committed(self, ticket: Ticket, settlement: Settlement, began: float) -> None:
        """Put the response into the front, as the authority now has it, or remove the busy
        marker.
        """
        claimed = self._under_way.pop(ticket.owner.int, None)
        if settlement.status is Status.RUNNING:  # it continues under another token
            self._under_way.pop(settlement.fence.int, None)
            # A takeover: its own settle follows.
            if claimed is not None and claimed.record.owner == settlement.fence:
                self._under_way[ticket.owner.int] = self._settled(
                    claimed, ticket, settlement, began
                )
        completes = settlement.status is Status.COMPLETED and settlement.outcome is not None
        if not completes or claimed is None or claimed.record.owner != settlement.fence:
            self.front.drop(ticket.id)
            return
        self._put(self._settled(claimed, ticket, settlement, began))

    def _settled(
        self, claimed: _Copy, ticket: Ticket, settlement: Settlement, began: float
    ) -> _Copy:
        """Return the copy of a record that a settlement has written.

        By the authority's clock, computed from its claim and our monotonic clock: a little ahead,
        so deadlines come early.
        """
        now = claimed.record.read_at + timedelta(seconds=began - claimed.asked)
        record = settled_record(
            ticket, claimed.record._replace(read_at=now, taken=False), settlement, now
        )
        return _Copy(record, began, self._seconds)

    def _put(self, copy: _Copy) -> None:
        age = self._clock() - copy.asked
        now = copy.record.read_at + timedelta(seconds=age)
        deadline = (
            copy.record.lease_until
            if copy.record.status is Status.RUNNING
            else copy.record.expires_at
        )
        seconds = min(copy.longest - age, (deadline - now).total_seconds())
        if age <= FRESH and seconds > 0:
            self.front.put(copy.record._replace(read_at=now), seconds=seconds)

    # ------------------------------------------------------------------------------ for an operator

    def change(self, record_id: UUID, wanted: Wanted, *, audit: Audit) -> Intervention:
        """Drop the copy as well, even if nothing was changed, or the record is gone: repeat it to
        drop a stale one.
        """
        try:
            return super().change(record_id, wanted, audit=audit)
        finally:
            self._drop_copy(record_id)

    def _drop_copy(self, record_id: UUID) -> None:
        def drop() -> None:
            if not self.front.drop(record_id, insist=True):
                logger.error(
                    "A front is not responding, and may replay for up to %g s what was "
                    "changed by hand. "
                    "Repeat the change when the front is back.",
                    self._seconds,
                )

        self.front.drop(record_id)
        # Until a caller's COMMIT, others read the old record, and copy it.
        self.store.after_commit(drop)
