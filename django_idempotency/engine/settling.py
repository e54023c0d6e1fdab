"""One settle of a lease, from its first try to its event.

The call itself (`lease`) makes the first tries. If the store still does not respond, the response
goes out and a thread (`deferring`) continues.
"""

from __future__ import annotations

import time
from math import inf
from typing import NamedTuple, Protocol

from ..core import rules
from ..core.conclusions import SettledState
from ..core.records import MISSING, Settlement, Ticket
from ..errors import LostRace
from .heartbeat import Leased
from .waiting import SETTLE_PAUSE, may_retry


class SettleResult(NamedTuple):
    """The outcome of a settle: how it left the record (`None`: we did not settle it), or that it is
    retried later.
    """

    state: SettledState | None
    error: Exception | None = None
    deferred: bool = False


class Settler(Leased, Protocol):
    """The operation that settles: its work is over."""

    #: Was the claim made inside an open transaction, so that it may be rolled back with the work?
    claimed_inside: bool

    def keep_lease(self) -> None:
        """Resume renewing the lease."""

    def leave_lease(self) -> None:
        """Stop renewing the lease."""

    def lease_ends(self) -> float:
        """Return when the lease has certainly ended unless renewed, by the host's monotonic
        clock.
        """

    def defer(self, settling: Settling) -> bool:
        """Queue it for retries in the background. `False`: there is no room for it."""

    def notify_settled(self, result: SettleResult) -> None:
        """Report its outcome."""


class Settling:
    """A settlement, and how long it is retried. It is fenced: an owner that lost its record changes
    nothing.
    """

    #: When the thread gives up, if the lease has not ended before.
    until = inf
    #: Why the last try failed.
    error: Exception | None = None

    def __init__(
        self, operation: Settler, state: SettledState, ticket: Ticket, settlement: Settlement
    ) -> None:
        self.operation = operation
        self.state = state
        self.ticket = ticket
        self.settlement = settlement
        self._began = time.monotonic()

    @property
    def weight(self) -> int:
        """The approximate number of bytes that it keeps in memory."""
        outcome = self.settlement.outcome
        return 0 if outcome is None or outcome.body is MISSING else len(outcome.body)

    def attempt(self) -> SettleResult:
        """Write it once, and return its outcome. Raises what the store raises."""
        settled = self._write()
        if not settled and self.operation.claimed_inside:
            settled = self._write_under_new_claim()
        return SettleResult(self.state if settled else None)

    def _write(self) -> bool:
        """Write it. Return whether we owned the record."""
        return self.operation.store.settle(self.ticket, self.settlement)

    def _write_under_new_claim(self) -> bool:
        """Claim the record again, since our claim may have been rolled back with the work, and
        write it. Return whether we owned the record.
        """
        record = self.operation.store.claim(self.ticket)
        return rules.owned(record, self.ticket) and self._write()

    def retry(self, error: Exception) -> SettleResult:
        """Continue after a try that failed: with a few more, and then in the background."""
        result = self._failed(error)
        while result is None:
            time.sleep(SETTLE_PAUSE)
            try:
                result = self.attempt()
            except Exception as another:  # noqa: BLE001 - the response is sent anyway
                result = self._failed(another)
        return result

    def _failed(self, error: Exception) -> SettleResult | None:
        """Return the outcome of a failed try; `None`: pause, then retry.

        Either way the response is kept.
        """
        if may_retry(self._began):
            return None
        self.error = None if isinstance(error, LostRace) else error
        return SettleResult(None, self.error, deferred=self._is_deferred(time.monotonic()))

    def given_up(self) -> SettleResult:
        """Return the outcome of a settle that is given up."""
        return SettleResult(None, self.error)

    def _is_deferred(self, now: float) -> bool:
        """Continue in the background if the lease protects the record until then.

        Return whether it does.
        """
        operation = self.operation
        # No other connection sees a record that was claimed inside an open transaction.
        if operation.claimed_inside or operation.lost is not None or operation.lease_ends() <= now:
            return False
        self.until = now + operation.ticket.lease
        return operation.defer(self)

    def is_over(self, now: float) -> bool:
        """Has the lease or the time for retries ended?

        A store that refuses our writes is not retried indefinitely.
        """
        return self.operation.lost is not None or now >= min(
            self.until, self.operation.lease_ends()
        )
