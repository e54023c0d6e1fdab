"""One settle after the work, from its first try to its event: the decisions. Ring 2.

The call itself (`operation`) makes the first tries. If the store still does not answer, the response goes out and a thread
(`deferring`) goes on.
"""

from __future__ import annotations

import time
from math import inf
from typing import NamedTuple, Protocol

from ..core import rules
from ..core.records import MISSING, Record, Settlement, Ticket
from ..core.rules import SettledState
from ..errors import LostRace
from .durable import ahand_over, hand_over
from .heartbeat import Leased

#: Seconds between two tries of a call, and in total. With one more timeout of its store, this delays a finished response
#: by up to a second.
SETTLE_PAUSE, SETTLE_PATIENCE = 0.1, 0.6


class SettleResult(NamedTuple):
    """The outcome of a settle: how it left the record (`None`: we did not settle it), or that it is retried later."""

    state: SettledState | None
    error: Exception | None = None
    deferred: bool = False


class Settler(Leased, Protocol):
    """The operation that settles: its work is over."""

    record: Record | None
    #: Was the claim made inside an open transaction, so that it may be rolled back with the work?
    claimed_inside: bool

    def keep_lease(self) -> None:
        """Resume renewing the lease."""

    def leave_lease(self) -> None:
        """Stop renewing the lease."""

    def lease_ends(self) -> float:
        """Return when the lease has certainly ended unless renewed, by the host's monotonic clock."""

    def settle_guarded(self, settlement: Settlement) -> bool:
        """Settle under the row's lock. Return whether the record was ours."""

    def defer(self, settling: Settling) -> bool:
        """Queue it for retries in the background. `False`: there is no room for it."""

    def notify_settled(self, result: SettleResult) -> None:
        """Report its outcome."""


class Settling:
    """A settlement, and how long it is retried. Fenced: an owner that lost its record changes nothing."""

    #: When the thread gives up, if the lease has not ended before.
    until = inf
    #: Why the last try failed.
    error: Exception | None = None

    def __init__(
        self, operation: Settler, state: SettledState, ticket: Ticket, settlement: Settlement, why: Exception | None
    ) -> None:
        self.operation = operation
        self.state = state
        self._ticket = ticket
        self._settlement = settlement
        #: The error of its event.
        self._why = why
        self._began = time.monotonic()

    @property
    def weight(self) -> int:
        """The approximate number of bytes that it keeps in memory."""
        outcome = self._settlement.outcome
        return 0 if outcome is None or outcome.body is MISSING else len(outcome.body)

    def write(self) -> bool:
        """Write it. Return whether the record was ours."""
        return self._write() or (self._claimed_inside and self._claim_again() and self._write())

    async def awrite(self) -> bool:
        """See write()."""
        return await self._awrite() or (self._claimed_inside and await self._aclaim_again() and await self._awrite())

    @property
    def _claimed_inside(self) -> bool:
        """Was the claim made inside an open transaction, so that it may have been rolled back with the work?"""
        return self.operation.claimed_inside

    def _claim_again(self) -> bool:
        return rules.owned(self.operation.store.claim(self._ticket), self._ticket)

    async def _aclaim_again(self) -> bool:
        """See _claim_again()."""
        return rules.owned(await self.operation.store.aclaim(self._ticket), self._ticket)

    def _write(self) -> bool:
        if self.state is SettledState.SUSPENDED:
            return hand_over(self.operation.store, self._ticket, self._settlement)
        return self.operation.store.settle(self._ticket, self._settlement)

    async def _awrite(self) -> bool:
        """See _write()."""
        if self.state is SettledState.SUSPENDED:
            return await ahand_over(self.operation.store, self._ticket, self._settlement)
        return await self.operation.store.asettle(self._ticket, self._settlement)

    def written(self, settled: bool) -> SettleResult:
        """Return the outcome of a try that the store has responded to."""
        return SettleResult(self.state if settled else None, self._why)

    def failed(self, error: Exception) -> SettleResult | None:
        """Return the outcome of a try that failed; `None`: pause, and retry. Either way the response is kept."""
        now = time.monotonic()
        if now - self._began + SETTLE_PAUSE <= SETTLE_PATIENCE:
            return None
        self.error = None if isinstance(error, LostRace) else error
        return SettleResult(None, self.error, deferred=self._deferred(now))

    def given_up(self) -> SettleResult:
        """Return the outcome of a settle that is given up."""
        return SettleResult(None, self.error)

    def _deferred(self, now: float) -> bool:
        """Continue in the background if the lease protects the record until then. Return whether it does."""
        operation = self.operation
        joined = operation.record is not None and operation.record.joined  # no other connection sees it
        if joined or operation.lost is not None or operation.lease_ends() <= now:
            return False
        self.until = now + operation.ticket.lease
        return operation.defer(self)

    def is_over(self, now: float) -> bool:
        """Has the lease or the time for retries ended? A store that refuses our writes is not tried forever."""
        return self.operation.lost is not None or now >= min(self.until, self.operation.lease_ends())


class GuardedSettling(Settling):
    """The same in `atomic`, after a rollback: under the row's lock. A failure has already been rolled back."""

    def _write(self) -> bool:
        """Write it, unless the record has been settled since."""
        return self.operation.settle_guarded(self._settlement)

    def _deferred(self, now: float) -> bool:
        return False
