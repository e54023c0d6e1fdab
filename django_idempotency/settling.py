"""One settle after the work, from its first try to what is told of it: the decisions. Ring 2.

Who drives it may wait: a call (`engine`), and when the store still does not answer, a thread (`deferring`). The response
does not wait for the second.
"""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from .core import rules
from .core.records import MISSING, Settlement, Ticket
from .core.rules import Leave
from .deferring import deferring
from .errors import LostRace
from .suspension import apassed_on, passed_on

if TYPE_CHECKING:
    from .engine import Operation

#: A settle that could not be written is tried again after so many seconds, as long as not so many have passed: with
#: one more timeout of a store, a response that is done comes a second later at most.
SETTLE_PAUSE, SETTLE_PATIENCE = 0.1, 0.6


class News(NamedTuple):
    """What became of a settle: what the record is left as (`None`: not settled by us), or that it is tried later."""

    leave: Leave | None
    error: Exception | None = None
    deferred: bool = False


class Settling:
    """A settlement, and how long it is tried. Fenced: an overtaken owner changes nothing, however late."""

    #: When the thread gives up, if the lease has not ended before.
    until = inf
    #: Why it could not be written, the last time.
    error: Exception | None = None

    def __init__(
        self, operation: Operation, leave: Leave, ticket: Ticket, settlement: Settlement, why: Exception | None
    ) -> None:
        self.operation = operation
        self.leave = leave
        self._ticket = ticket
        self._settlement = settlement
        #: Why it is what it is; to be told with it.
        self._why = why
        self._began = time.monotonic()

    @property
    def weight(self) -> int:
        """How many bytes it keeps in memory, nearly."""
        outcome = self._settlement.outcome
        return 0 if outcome is None or outcome.body is MISSING else len(outcome.body)

    def write(self) -> bool:
        """Write it. Say whether the record was ours."""
        return self._write() or (self._claimed_inside and self._claim_again() and self._write())

    async def awrite(self) -> bool:
        """See write()."""
        return await self._awrite() or (self._claimed_inside and await self._aclaim_again() and await self._awrite())

    @property
    def _claimed_inside(self) -> bool:
        """Was the claim made in a transaction that was open, so that it may have been rolled back with the work?"""
        return self.operation.claimed_inside

    def _claim_again(self) -> bool:
        return rules.owned(self.operation.store.claim(self._ticket), self._ticket)

    async def _aclaim_again(self) -> bool:
        """See _claim_again()."""
        return rules.owned(await self.operation.store.aclaim(self._ticket), self._ticket)

    def _write(self) -> bool:
        if self.leave is Leave.SUSPENDED:
            return passed_on(self.operation.store, self._ticket, self._settlement)
        return self.operation.store.settle(self._ticket, self._settlement)

    async def _awrite(self) -> bool:
        """See _write()."""
        if self.leave is Leave.SUSPENDED:
            return await apassed_on(self.operation.store, self._ticket, self._settlement)
        return await self.operation.store.asettle(self._ticket, self._settlement)

    def written(self, settled: bool) -> News:
        """Say what to tell of a try that the store has answered."""
        return News(self.leave if settled else None, self._why)

    def failed(self, error: Exception) -> News | None:
        """Say what to tell of a try that failed; `None`: pause, and try again. The response stands all the same."""
        now = time.monotonic()
        if now - self._began + SETTLE_PAUSE <= SETTLE_PATIENCE:
            return None
        self.error = None if isinstance(error, LostRace) else error
        return News(None, self.error, deferred=self._deferred(now))

    def given_up(self) -> News:
        """Say what to tell of a settle that is not tried any more."""
        return News(None, self.error)

    def _deferred(self, now: float) -> bool:
        """Go on in the background, where the lease protects the record until it is written."""
        operation = self.operation
        joined = operation.record is not None and operation.record.joined  # no other connection sees it
        if joined or operation.lost is not None or operation.lease_ends() <= now:
            return False
        self.until = now + operation.ticket.lease
        return deferring.add(self)

    def is_over(self, now: float) -> bool:
        """Has the lease ended, or the time that there was? A store that refuses what we write is not asked for ever."""
        return self.operation.lost is not None or now >= min(self.until, self.operation.lease_ends())


class GuardedSettling(Settling):
    """The same in `atomic`, after a rollback: under the row's lock, and what fails has been undone already."""

    def _write(self) -> bool:
        """Write it, unless somebody has settled the record since."""
        return self.operation.settle_guarded(self._settlement)

    def _deferred(self, now: float) -> bool:
        return False
