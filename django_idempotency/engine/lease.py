"""Calls with `lease`: the record is ours until a deadline, which the heartbeat moves while the work
runs.

claim ── the work, in no transaction of ours ── settle     if the store does not respond, `deferring` retries
  |--- lease ---|                                          the response is sent meanwhile
      |--- lease ---|       renewed by `heartbeat`
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime, timezone

from ..core import conclusions, rules
from ..core.conclusions import Conclusion, Ending, Rollback, SettledState
from ..core.concurrency import run_to_completion
from ..core.failures import failed_with
from ..core.records import Outcome, Record, Ticket
from ..core.rules import Execute, Verdict
from ..errors import IdempotencyError, StoreUnavailable, TransactionLeftOpen, WritesRolledBack
from ..stores.base import BaseStore
from .commands import adrive, drive
from .deadlines import ENDS, remaining, time_for
from .deferring import deferring
from .heartbeat import Lease, heartbeat
from .operation import EVENT_OF_STATE, WAITED_FOR, EventSink, Operation, event_of
from .settling import SettleResult, Settling
from .waiting import pauses

logger = logging.getLogger("django_idempotency")

#: Seconds. A lease is never zero, or the host's deadline would be read as a crash.
LEAST_LEASE = 0.001


class LeaseOperation(Operation):
    """A call that owns its record until its lease ends."""

    #: Why the record is no longer ours while the work still runs.
    lost: Exception | None = None
    #: Is its settle waiting to be retried in the background?
    deferred = False
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

    async def aopen(self, wait: float = 0.0) -> Verdict:
        """See open().

        Waiting holds no thread. A cancellation leaves the key unchanged: nothing has run.
        """
        hurries = ENDS.get() is not None
        if hurries:
            wait = time_for(wait)
        try:
            verdict = await run_to_completion(self._aclaim())
            if wait > 0 and isinstance(verdict, WAITED_FOR):
                verdict = await self._await_turn(verdict, wait)
            if hurries and isinstance(verdict, Execute):
                time_for(0)
            await self._anotify(event_of(verdict))
        except (
            GeneratorExit
        ):  # nothing can be awaited any more: the key is busy until its lease ends
            self.leave_lease()
            raise
        except BaseException:
            await run_to_completion(self.aabandon())
            raise
        return verdict

    async def _await_turn(self, busy: Verdict, wait: float) -> Verdict:
        """See _wait(). It holds no thread."""
        started = time.monotonic()
        for pause, _ in pauses(wait):
            await asyncio.sleep(pause)
            busy = await run_to_completion(self._aclaim_again(busy))
            if not isinstance(busy, WAITED_FOR):
                break
        self.waited = time.monotonic() - started
        return busy

    def _claim_again(self, busy: Verdict) -> Verdict:
        self._shorten_lease()
        try:
            return self._claim()
        except StoreUnavailable:
            self._unanswered = True
            return busy

    async def _aclaim_again(self, busy: Verdict) -> Verdict:
        """See _claim_again()."""
        self._shorten_lease()
        try:
            return await self._aclaim()
        except StoreUnavailable:
            self._unanswered = True
            return busy

    def _shorten_lease(self) -> None:
        """Let the lease end with the host, even after the claim had to wait."""
        if not self._renews and (left := remaining()) is not None:
            self.ticket = self.ticket._replace(lease=max(left, LEAST_LEASE))

    def _judge(self, record: Record) -> Verdict:
        return self._judged(record)

    async def _ajudge(self, record: Record) -> Verdict:
        """See _judge()."""
        return self._judged(record)

    def _judged(self, record: Record) -> Verdict:
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
        self._notify("lost", self.lost)

    def _notify(self, event: str, error: BaseException | None = None) -> None:
        self.sink(event, self, error)

    async def _anotify(self, event: str, error: BaseException | None = None) -> None:
        """See _notify()."""
        asend = getattr(self.sink, "asend", None)
        if asend is None:
            self.sink(event, self, error)
        else:
            await asend(event, self, error)

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

    async def aabandon(self) -> None:
        if self.run is None:
            return
        state = conclusions.withdrawn(self.run)
        try:
            await self._asettle(state)
        except TransactionLeftOpen as left:
            self.log_left_open(left)
            await self._asettle(state)

    def settle(self, ending: Ending) -> None:
        """Settle as the base class says. A failed write is an event, and the response is sent."""
        conclusion = self._conclude(ending, ending.undone)
        if conclusion.withheld:
            withheld = WritesRolledBack.by(ending.undone_by)
            self._log_rollback(ending.undone_by)
            self._settle(conclusion.state, failed_with(withheld, at=datetime.now(timezone.utc)))
            raise withheld from ending.undone_by
        try:
            self._settle(conclusion.state, ending.outcome, ending.ttl)
        except TransactionLeftOpen as left:  # its writes are gone
            self.log_left_open(left)
            conclusion = self._conclude(ending, Rollback.ERROR)
            if not conclusion.withheld:
                self._settle(conclusion.state, ending.outcome, ending.ttl)
                return
            self._settle(conclusion.state, failed_with(left, at=datetime.now(timezone.utc)))
            raise

    async def asettle(self, ending: Ending) -> None:
        """Settle as settle() does."""
        conclusion = self._conclude(ending, ending.undone)
        if conclusion.withheld:
            withheld = WritesRolledBack.by(ending.undone_by)
            self._log_rollback(ending.undone_by)
            await self._asettle(
                conclusion.state, failed_with(withheld, at=datetime.now(timezone.utc))
            )
            raise withheld from ending.undone_by
        try:
            await self._asettle(conclusion.state, ending.outcome, ending.ttl)
        except TransactionLeftOpen as left:
            self.log_left_open(left)
            conclusion = self._conclude(ending, Rollback.ERROR)
            if not conclusion.withheld:
                await self._asettle(conclusion.state, ending.outcome, ending.ttl)
                return
            await self._asettle(conclusion.state, failed_with(left, at=datetime.now(timezone.utc)))
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
            settled = self.store.settle(settling.ticket, settling.settlement)
            result = settling.written(settled or drive(self.store, settling.refused()))
        except TransactionLeftOpen:
            raise
        except Exception as error:  # noqa: BLE001 - the response is sent anyway
            failed = error
            result = drive(self.store, settling.retrying(error))
        if (event := self._noted(result)) is not None:
            self._notify(event, result.error)
        if failed is not None and _is_interrupt(failed, result):
            raise failed

    async def _asettle(
        self, state: SettledState, outcome: Outcome | None = None, ttl: float | None = None
    ) -> None:
        """See _settle()."""
        settling = self._settling(state, outcome, ttl)
        if settling is None:
            return
        failed: Exception | None = None
        try:
            settled = await self.store.asettle(settling.ticket, settling.settlement)
            result = settling.written(settled or await adrive(self.store, settling.refused()))
        except TransactionLeftOpen:
            raise
        except Exception as error:  # noqa: BLE001 - the response is sent anyway
            failed = error
            result = await adrive(self.store, settling.retrying(error))
        if (event := self._noted(result)) is not None:
            await self._anotify(event, result.error)
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
        """Report the outcome of a deferred settle."""
        if (event := self._noted(result)) is not None:
            self._notify(event, result.error)

    def _noted(self, result: SettleResult) -> str | None:
        """Note the outcome of a settle, and return its event; `None` if the heartbeat has already
        reported the loss.
        """
        self.left_as = result.state
        if result.deferred:
            return "deferred"
        if result.state is None and self.lost is not None:
            return None
        return EVENT_OF_STATE[result.state]


def _is_interrupt(failed: Exception, result: SettleResult) -> bool:
    """Was the first try of a settle cut, as by a time limit?

    It is no error of a store, and has not come again.
    """
    return result.state is not None and not isinstance(failed, (IdempotencyError, OSError))
