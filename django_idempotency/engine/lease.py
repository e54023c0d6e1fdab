"""Calls with `lease`: the record is ours until a deadline, which the heartbeat moves while the work
runs.

claim ── the work, in no transaction of ours ── settle     if the store does not respond, `deferring` retries
  |--- lease ---|                                          the response is sent meanwhile
      |--- lease ---|       renewed by `heartbeat`
"""

from __future__ import annotations

import logging

from ..core import conclusions, rules
from ..core.conclusions import Conclusion, Ending, Rollback, SettledState
from ..core.failures import failed_with
from ..core.records import Outcome, Record, Ticket
from ..core.rules import Execute, Verdict
from ..errors import IdempotencyError, StoreUnavailable, TransactionLeftOpen, WritesRolledBack
from ..stores.base import BaseStore, utcnow
from .deadlines import ENDS, remaining
from .deferring import deferring
from .heartbeat import Lease, heartbeat
from .operation import EVENT_OF_STATE, EventSink, Operation
from .settling import SettleResult, Settling

logger = logging.getLogger("django_idempotency")

#: Seconds. A lease is never zero, or the host's deadline would be read as a crash.
LEAST_LEASE = 0.001


class LeaseOperation(Operation):
    """A call that owns its record until its lease ends."""

    #: Why the record is no longer ours while the work still runs.
    lost: Exception | None = None
    #: Did one of our claims get no response, so that it may have taken the record over?
    _unanswered = False
    #: The lease that the heartbeat has watched.
    _lease: Lease | None = None

    def __init__(
        self, store: BaseStore, ticket: Ticket, sink: EventSink, *, on_failure: str = "free"
    ) -> None:
        super().__init__(store, ticket, sink, on_failure=on_failure)
        #: Does the heartbeat renew its lease? Not if the host stops when the lease ends.
        self._renews = ENDS.get() is None
        self._shorten_lease()

    def is_lost(self) -> bool:
        return self.lost is not None or heartbeat.lapsed(self)

    # ----------------------------------------------------------------------------------------- open

    def claim_again(self, busy: Verdict) -> Verdict:
        self._shorten_lease()
        try:
            return self.claim()
        except StoreUnavailable:
            self._unanswered = True
            return busy

    def _shorten_lease(self) -> None:
        """Let the lease end with the host, even after the claim had to wait."""
        if not self._renews and (left := remaining()) is not None:
            self.ticket = self.ticket._replace(lease=max(left, LEAST_LEASE))

    def _judge(self, record: Record) -> Verdict:
        verdict = self._read(record)
        if isinstance(verdict, Execute):
            self._begin(verdict)  # now, because a cancelled call gets no verdict
        return verdict

    def _read(self, record: Record) -> Verdict:
        return rules.read(record, self.ticket, self._unanswered)

    def _begin(self, run: Execute) -> None:
        """See Operation._begin().

        A claim inside an open transaction is invisible to the heartbeat.
        """
        super()._begin(run)
        if self._renews and not self.claimed_inside:
            heartbeat.watch(self)

    # ------------------------------------------------------------------------------------ the lease

    def leave_lease(self) -> None:
        """Stop the heartbeat for this lease."""
        self._lease = heartbeat.forget(self) or self._lease

    def close(self) -> None:
        """See Operation.close().

        The heartbeat does not renew the lease of a call that an interrupt has cut.
        """
        if not self.deferred:
            self._renews = False  # also if a thread has still to claim it
            self.leave_lease()

    def keep_lease(self) -> None:
        """Resume the heartbeat if it ran before leave_lease(), unless the lease has been lost
        since.
        """
        if self._lease is not None and self.lost is None:
            heartbeat.resume(self._lease)

    def lease_ends(self) -> float:
        """Return when the lease has certainly ended unless renewed, by the host's monotonic
        clock.
        """
        return self._opened_at + self.ticket.lease if self._lease is None else self._lease.ends

    def notify_lost(self) -> None:
        """Report that the heartbeat has set `lost`: another call may own the record.

        The work may check, and stop.
        """
        self.sink("lost", self, self.lost)

    # --------------------------------------------------------------------------------------- settle

    def abandon(self) -> None:
        if self.run is None:
            return
        state = conclusions.withdrawn(self.run)
        try:
            self._settle(state)
        except TransactionLeftOpen as left:  # it is rolled back
            self.log_left_open(left)
            self._settle(state)

    def settle(self, ending: Ending) -> None:
        """Settle as the base class says. A failed write is an event, and the response is sent."""
        conclusion = self._conclude(ending, ending.undone)
        if conclusion.withheld:
            withheld = WritesRolledBack()
            self._log_rollback(None)
            self._settle(conclusion.state, failed_with(withheld, at=utcnow()))
            raise withheld
        try:
            self._settle(conclusion.state, ending.outcome, ending.ttl)
        except TransactionLeftOpen as left:  # its writes are gone
            self.log_left_open(left)
            conclusion = self._conclude(ending, Rollback.ERROR)
            if not conclusion.withheld:
                self._settle(conclusion.state, ending.outcome, ending.ttl)
                return
            self._settle(conclusion.state, failed_with(left, at=utcnow()))
            raise

    def _conclude(self, ending: Ending, rollback: Rollback) -> Conclusion:
        return conclusions.conclude(
            ending.work_result, rollback, self._on_failure, succeeded=ending.succeeded
        )

    def log_left_open(self, left: TransactionLeftOpen) -> None:
        """Log that the work has left a transaction open, and where."""
        logger.error(
            "%s %s left a transaction open on the connection %r. It was rolled back: "
            "nobody commits it. Use atomic() in "
            "place of BEGIN and set_autocommit(False), or commit.",
            self.ticket.method or "The function",
            self.ticket.path or self.ticket.scope,
            left.using,
        )

    def _settle(
        self, state: SettledState, outcome: Outcome | None = None, ttl: float | None = None
    ) -> None:
        """Settle the record, with a few retries; report it, or queue it for more."""
        settling = self._settling(state, outcome, ttl)
        if settling is None:
            return
        failed: Exception | None = None
        try:
            result = settling.attempt()
        except TransactionLeftOpen:
            raise
        except Exception as error:  # noqa: BLE001 - the response is sent anyway
            failed = error
            result = settling.retry(error)
        self.notify_settled(result)
        if failed is not None and _is_interrupt(failed, result):
            raise failed

    def _settling(
        self, state: SettledState, outcome: Outcome | None, ttl: float | None
    ) -> Settling | None:
        """Stop the heartbeat, and return the settlement to write; `None` if the record stays
        unchanged.
        """
        self.leave_lease()
        settlement = self._settlement(state, outcome, ttl, alone=not self.claimed_inside)
        if settlement is None:
            self.left_as = state
            return None
        return Settling(self, state, self.ticket, settlement)

    def defer(self, settling: Settling) -> bool:
        """Queue a settle for retries in the background. `False`: there is no room for it."""
        return deferring.add(settling)

    def notify_settled(self, result: SettleResult) -> None:
        """Note and report the outcome of a settle, unless the heartbeat has reported the loss."""
        self.left_as = result.state
        if result.deferred:
            self.sink("deferred", self, result.error)
        elif result.state is not None or self.lost is None:
            self.sink(EVENT_OF_STATE[result.state], self, result.error)


def _is_interrupt(failed: Exception, result: SettleResult) -> bool:
    """Was the first try of a settle cut, as by a time limit?

    It is no error of a store, and has not come again.
    """
    return result.state is not None and not isinstance(failed, (IdempotencyError, OSError))
