"""One call under a key: open, execute, settle. Ring 2: it applies the rules to a store, without Django."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from typing import NoReturn, Protocol

from ..concurrency.cancellation import run_to_completion
from ..core import rules
from ..core.records import Guarantee, Outcome, Record, Settlement, Ticket
from ..core.rules import Busy, Execute, Mismatch, Replay, SettledState, Unreadable, Verdict, WorkResult
from ..errors import (
    IdempotencyError,
    LostRace,
    OutcomeUnknown,
    OwnershipLost,
    RecordUnreadable,
    StoreUnavailable,
    TransactionLost,
)
from ..stores.base import BaseStore, Guard
from .deferring import deferring
from .durable import Execution, aresume, resume
from .heartbeat import Lease, heartbeat
from .settling import SETTLE_PAUSE, GuardedSettling, SettleResult, Settling
from .waiting import pauses, wait_slots

#: Rounds of claim and guard before the verdict is Busy. In each lost round another request has won.
ROUNDS = 2
#: Seconds: a lease is never zero, or the host's deadline would be read as a crash.
LEAST_LEASE = 0.001
#: Before a guard, and where there is none.
NO_GUARD = Guard()


class EventSink(Protocol):
    """Gets each event. `event` is one of `EVENTS`. From async code its coroutine `asend` is called, if it has one."""

    def __call__(self, event: str, operation: Operation, error: BaseException | None = None) -> None: ...


#: claimed (first run), taken_over, resumed, replayed, busy, mismatched, unreadable; then completed, released, suspended, or
#: lost: it was no longer ours. In between deferred: the store did not respond, and is tried again in the background.
EVENTS = (
    *("claimed", "replayed", "busy", "mismatched", "unreadable", "taken_over", "resumed"),
    *("completed", "released", "suspended", "deferred", "lost"),
)


class Operation:
    """A call that wants to run under a ticket: `open()` it, run the work if the verdict says so, then `settle()` it.

    It lives in one thread (or task), and serves one call.
    """

    run: Execute | None = None
    #: The record as the claim or the guard found it.
    record: Record | None = None
    #: Why the record is no longer ours while the work still runs; `lease` only.
    lost: Exception | None = None
    #: Is its settle waiting to be retried in the background?
    deferred = False
    #: How settle() left the record; `None`: it was not settled, or not by us.
    left_as: SettledState | None = None
    #: The durable execution that makes the call, if one does; `lease` only.
    execution: Execution | None = None
    #: Why the work's transaction was rolled back, if the work did not do so itself.
    _why: Exception | None = None
    #: What the heartbeat has watched.
    _lease: Lease | None = None
    _guard = NO_GUARD
    #: The guard, while it is open.
    _guard_ends: ExitStack | None = None
    _opened_at = 0.0
    #: Was the claim made inside an open transaction, so that it may be rolled back with the work?
    claimed_inside = False
    #: Did a claim of ours get no response, so that it may have succeeded?
    _unanswered = False
    #: The attempt that our execution has suspended, if it was found and has not been resumed since.
    resuming = 0

    def __init__(
        self,
        store: BaseStore,
        ticket: Ticket,
        sink: EventSink,
        *,
        hold_failures: bool = False,
        renews: bool = True,
        left: Callable[[], float | None] | None = None,
    ) -> None:
        self.store = store
        self.ticket = ticket
        self._sink = sink
        self._hold_failures = hold_failures
        #: Does the heartbeat renew its lease? Not if the host stops when the lease ends.
        self._renews = renews
        #: Seconds until the host stops, and with it the lease.
        self._left = left

    @property
    def attempt(self) -> int:
        """The number of this run of the key: above 1, an earlier one failed, was refused or crashed."""
        return self.run.attempt if self.run else 0

    def is_lost(self) -> bool:
        """May another own the record by now, while the work still runs?"""
        return self.lost is not None or heartbeat.lapsed(self)

    # --------------------------------------------------------------------------------------------------------- open

    def open(self, wait: float = 0.0, waiters: int = 0) -> Verdict:
        """Claim the key and hold the record. The work may run only after `Execute`, and then settle() must follow.

        Raises `StoreUnavailable`; nothing has run then. A busy record is waited for up to `wait` seconds, unless a
        quarter of the process's threads wait already. At least `waiters` threads may wait.
        """
        verdict = self._try()
        if isinstance(verdict, Busy) and wait > 0:
            with wait_slots.acquire(least=waiters) as admitted:
                for pause, left in pauses(wait) if admitted else ():
                    began = time.monotonic()
                    with suppress(StoreUnavailable):
                        self.store.wait(self.ticket, seconds=left)
                    time.sleep(max(0.0, pause - (time.monotonic() - began)))
                    self._shorten()
                    try:
                        verdict = self._try()
                    except StoreUnavailable:  # the last known state was busy
                        self._unanswered = True
                    if not isinstance(verdict, Busy):
                        break
        try:
            self._notify(self._opened(verdict))
        except BaseException:
            self.abandon()
            raise
        return verdict

    async def aopen(self, wait: float = 0.0) -> Verdict:
        """See open(). Waiting holds no thread. A cancellation leaves the key as it was: nothing has run."""
        try:
            verdict = await run_to_completion(self._atry())
            for pause, _ in pauses(wait) if isinstance(verdict, Busy) else ():
                await asyncio.sleep(pause)
                self._shorten()
                try:
                    verdict = await run_to_completion(self._atry())
                except StoreUnavailable:
                    self._unanswered = True
                if not isinstance(verdict, Busy):
                    break
            await self._anotify(self._opened(verdict))
        except BaseException:
            await run_to_completion(self.aabandon())
            raise
        return verdict

    def _shorten(self) -> None:
        """Limit the lease to the host's deadline, even after the claim had to wait."""
        if self._left is not None and not self._renews and (left := self._left()) is not None:
            self.ticket = replace(self.ticket, lease=max(left, LEAST_LEASE))

    def _try(self) -> Verdict:
        for _ in range(ROUNDS):
            try:
                self.record = self._found(self.store.claim(self.ticket))
                verdict = rules.read(self.record, self.ticket, self._unanswered, self.resuming)
                if self.execution is not None and self._is_suspended_here(verdict, self.record):
                    self.record = resume(self.store, self.ticket, self.record)
                    verdict = self._read_resumed(self.record)
                if not isinstance(verdict, Execute) or self.ticket.guarantee is not Guarantee.ATOMIC:
                    return verdict
                if (held := self._enter_guard(verdict)) is not None:
                    return held
            except LostRace:
                continue
            except RecordUnreadable:
                return Unreadable()
        return Busy(retry_after=1)

    async def _atry(self) -> Verdict:
        for _ in range(ROUNDS):
            try:
                self.record = self._found(await self.store.aclaim(self.ticket))
                verdict = rules.read(self.record, self.ticket, self._unanswered, self.resuming)
                if self.execution is not None and self._is_suspended_here(verdict, self.record):
                    self.record = await aresume(self.store, self.ticket, self.record)
                    verdict = self._read_resumed(self.record)
                if isinstance(verdict, Execute):
                    # Now, since a cancelled call gets no verdict.
                    self.run, self._opened_at = verdict, time.monotonic()
            except LostRace:
                continue
            except RecordUnreadable:
                return Unreadable()
            else:
                return verdict
        return Busy(retry_after=1)

    def _found(self, record: Record) -> Record:
        """Note where a claim found the record: another connection, or this one later, may look elsewhere."""
        self.claimed_inside = record.joined
        if record.location is not None:
            self.ticket = replace(self.ticket, location=record.location)
        return record

    def _is_suspended_here(self, verdict: Verdict, record: Record) -> bool:
        """Is the busy record one that our own execution has suspended?"""
        if self.execution is None or not isinstance(verdict, Busy) or not self.execution.has_suspended(record):
            return False
        self.resuming = record.attempt
        return True

    def _read_resumed(self, record: Record) -> Verdict:
        if not rules.owned(record, self.ticket):
            self.resuming = 0
        return rules.read(record, self.ticket, self._unanswered, self.resuming)

    def _enter_guard(self, claimed: Execute) -> Verdict | None:
        """Lock the record and judge its current state. `None`: not ours, nothing is held."""
        assert self.record is not None
        with ExitStack() as ends:
            takeover = self.record.owner != self.ticket.owner
            self._guard = ends.enter_context(self.store.guard(self.ticket, takeover=takeover))
            if not self._guard.joins:
                verdict: Verdict | None = claimed
            elif self._guard.record is None:
                verdict = None
            else:
                self.record = self._guard.record
                verdict = rules.read(self.record, self.ticket)
            if isinstance(verdict, Execute):
                self._guard.mark()
                self._guard_ends = ends.pop_all()
            else:
                self._guard.set_rollback()
            return verdict

    def _opened(self, verdict: Verdict) -> str:
        """Record the verdict and return its event. A claim inside an open transaction is invisible to the heartbeat."""
        if isinstance(verdict, Execute):
            self.run, self._opened_at = verdict, time.monotonic()
            if self._renews and not self._guard.joins and self.record is not None and not self.record.joined:
                heartbeat.watch(self)
            return "taken_over" if verdict.takeover else "resumed" if verdict.resumed else "claimed"
        return _EVENT_OF_VERDICT[type(verdict)]

    # -------------------------------------------------------------------------------------------------------- lease

    def leave_lease(self) -> None:
        """Stop the heartbeat for this lease."""
        self._lease = heartbeat.forget(self) or self._lease

    def keep_lease(self) -> None:
        """Resume the heartbeat if it ran before leave_lease(), and the lease has not been lost meanwhile."""
        if self._lease is not None and self.lost is None:
            heartbeat.resume(self._lease)

    def lease_ends(self) -> float:
        """Return when the lease has certainly ended unless renewed, by the host's monotonic clock."""
        return self._opened_at + self.ticket.lease if self._lease is None else self._lease.ends

    # ------------------------------------------------------------------------------------------------------- settle

    def defer(self, settling: Settling) -> bool:
        """Queue a settle for retries in the background. `False`: there is no room for it."""
        return deferring.add(settling)

    def notify_lost(self) -> None:
        """Report that the heartbeat has set `lost`: another may own the record by now. The work may check, and stop."""
        self._notify("lost", self.lost)

    def savepoint(self) -> AbstractContextManager[None]:
        """Protect the work's transaction, if there is one, from failures of other code in it."""
        return nullcontext() if self._guard_ends is None else self._guard.savepoint()

    def abandon(self) -> None:
        """Restore a record whose work has not begun. Does nothing after any other verdict than `Execute`."""
        if self.run is None:
            return
        self.leave_lease()
        self._end_guard(giving_up=True)
        self._settle_apart(_abandoned(self.run), None, None)

    async def aabandon(self) -> None:
        """See abandon()."""
        if self.run is not None:
            self.leave_lease()
            await self._asettle_apart(_abandoned(self.run), None, None)

    def close(self) -> None:
        """Roll back and end a guard that was left open, such as by an interrupt. After settle() there is none."""
        self._end_guard(giving_up=True)

    def needs_rollback(self) -> bool:
        """Will the work's writes be rolled back, whatever its response?"""
        return self._guard.needs_rollback()

    def set_rollback(self) -> None:
        """Roll back the work's writes if we hold its transaction. settle() must follow."""
        self._guard.set_rollback()

    def settle(self, ended: WorkResult, outcome: Outcome | None = None, ttl: float | None = None) -> None:
        """Settle or release the record and end the guard, by the table in `core.rules`.

        Raises `OwnershipLost` when another owns the record and `StoreUnavailable` when it could not be written (our
        writes were rolled back), what COMMIT raised (the writes are gone), `OutcomeUnknown` (either may be true), and
        what an `on_commit` callback raised (all is committed).
        """
        self.leave_lease()
        if not self._guard.joins:
            state = rules.conclude(ended, False, self._hold_failures).state
            self._settle_apart(state, outcome, ttl)
            return
        try:
            self._settle_held(ended, outcome, ttl)
        finally:
            self._end_guard(giving_up=True)  # if something unforeseen left it open

    def _settle_held(self, ended: WorkResult, outcome: Outcome | None, ttl: float | None) -> None:
        guard = self._guard
        # The settle itself compares the transaction's id; ask only after giving up, when it is not made in the transaction.
        if (
            ended in (WorkResult.KEPT, WorkResult.DROPPED)
            and (guard.transaction_id is None or guard.needs_rollback())
            and guard.lost()
        ):
            self._lose()
        conclusion = rules.conclude(ended, guard.needs_rollback(), self._hold_failures)
        committing = conclusion.commit and self._settle_joined(conclusion.state, outcome, ttl)
        if not committing:
            guard.set_rollback()
        try:
            self._end_guard()
        except Exception as error:
            if guard.committed:  # an on_commit callback failed, after COMMIT: everything is committed
                self.notify_settled(SettleResult(conclusion.state))
            elif isinstance(error, OutcomeUnknown):
                self._notify("lost", error)
            else:
                self._settle_apart(rules.conclude(WorkResult.FAILED, needs_rollback=True).state, None, None)
            raise
        if guard.committed and committing:
            self.notify_settled(SettleResult(conclusion.state))
        else:  # rolled back, by the table or because the transaction was marked for rollback late
            self._settle_apart(conclusion.state, outcome, ttl)

    async def asettle(self, ended: WorkResult, outcome: Outcome | None = None, ttl: float | None = None) -> None:
        """See settle(). No transaction is held in an async call."""
        self.leave_lease()
        state = rules.conclude(ended, False, self._hold_failures).state
        await self._asettle_apart(state, outcome, ttl)

    def _settle_joined(self, state: SettledState, outcome: Outcome | None, ttl: float | None) -> bool:
        """Settle inside the work's transaction. `False`: that was marked for rollback meanwhile.

        Raises `OwnershipLost`, `TransactionLost` or `StoreUnavailable` after all of it was rolled back. The work had not
        given up its writes: our own statement failed, so its response must not be kept without them.
        """
        transaction_id = self._guard.transaction_id
        settlement = self._settlement(state, self.ticket, outcome, ttl, time.monotonic())
        assert settlement is not None
        try:
            settled = self.store.settle(
                self.ticket,
                settlement if transaction_id is None else replace(settlement, transaction_id=transaction_id),
            )
        except IdempotencyError as error:
            if not isinstance(error, LostRace) and transaction_id is not None and self._guard.lost():
                self._lose(error)
            self._roll_back()
            if isinstance(error, LostRace):
                raise OwnershipLost from error
            raise
        if not settled:
            if transaction_id is not None and self._guard.lost():
                self._lose()
            self._end_guard(giving_up=True)
            self.notify_settled(SettleResult(None))
            raise OwnershipLost
        return not self._guard.needs_rollback()

    def _roll_back(self, error: Exception | None = None) -> None:
        """End the guard without the work's writes, and release the record; report `error`, if there is one."""
        self._end_guard(giving_up=True)
        self._why = error
        self._settle_apart(rules.conclude(WorkResult.FAILED, needs_rollback=True).state, None, None)

    def _lose(self, cause: Exception | None = None) -> NoReturn:
        """Discard a response whose transaction is not the one that the guard began."""
        lost = TransactionLost()
        self._roll_back(lost)
        raise lost from cause

    def _settle_apart(self, state: SettledState, outcome: Outcome | None, ttl: float | None) -> None:
        """Settle after the work's transaction, or without one."""
        settling = self._settling(state, outcome, ttl)
        while settling is not None:
            result: SettleResult | None
            try:
                result = settling.written(settling.write())
            except Exception as error:  # noqa: BLE001 - the response is sent anyway
                result = settling.failed(error)
            if result is None:
                time.sleep(SETTLE_PAUSE)
            else:
                self.notify_settled(result)
                return

    async def _asettle_apart(self, state: SettledState, outcome: Outcome | None, ttl: float | None) -> None:
        """See _settle_apart()."""
        settling = self._settling(state, outcome, ttl)
        while settling is not None:
            result: SettleResult | None
            try:
                result = settling.written(await settling.awrite())
            except Exception as error:  # noqa: BLE001 - the response is sent anyway
                result = settling.failed(error)
            if result is None:
                await asyncio.sleep(SETTLE_PAUSE)
            else:
                await self.anotify_settled(result)
                return

    def _settling(self, state: SettledState, outcome: Outcome | None, ttl: float | None) -> Settling | None:
        """Return the settlement to write; `None`: none, the record stays as it is."""
        ticket = self._suspending_ticket() if state is SettledState.SUSPENDED else self.ticket
        settlement = self._settlement(state, ticket, outcome, ttl, time.monotonic())
        if settlement is None:
            self.left_as = state
            return None
        kind = GuardedSettling if ticket.guarantee is Guarantee.ATOMIC else Settling
        return kind(self, state, ticket, settlement, self._why)

    def settle_guarded(self, settlement: Settlement) -> bool:
        """Settle, under the row's lock, a record that a rollback has restored."""
        with self.store.guard(self.ticket) as guard:
            return self._still_ours(guard) and self.store.settle(self.ticket, settlement)

    def _still_ours(self, guard: Guard) -> bool:
        """Is the record still unsettled since our rollback? The owner that we took over from may have resumed in between.

        Raises `LostRace` while another holds it: a waiter does, for an instant. Try again then.
        """
        if not guard.joins:
            return True
        if guard.record is None and self.claimed_inside:
            return False
        if guard.record is None:
            raise LostRace
        return self.record is None or rules.untouched(guard.record, self.record, self.ticket)

    def _end_guard(self, *, giving_up: bool = False) -> None:
        """End the guard if it is open, by a rollback if asked to."""
        ends, self._guard_ends = self._guard_ends, None
        if ends is not None:
            if giving_up:
                self._guard.set_rollback()
            ends.close()

    def _suspending_ticket(self) -> Ticket:
        """Return the ticket under which our execution suspends the record."""
        assert self.execution is not None and self.record is not None, "a suspended call has run"  # noqa: PT018
        return self.execution.suspending_ticket(self.record, self.ticket)

    def _settlement(
        self, state: SettledState, ticket: Ticket, outcome: Outcome | None, ttl: float | None, now: float
    ) -> Settlement | None:
        assert self.run is not None, "settle() follows an open() that said Execute"
        if state is SettledState.SUSPENDED and self.record is not None:
            return rules.handover(self.record, ticket)
        if ttl is None and now - self._opened_at >= ticket.ttl:
            ttl = ticket.ttl  # the work took longer than its response was to be kept
        return rules.settlement(state, ticket, self.run, fence=self.record, outcome=outcome, ttl=ttl)

    def notify_settled(self, result: SettleResult) -> None:
        """Report the outcome of a settle, but not a loss that the heartbeat has already reported."""
        self.left_as = result.state
        if (event := _event_of(result, self.lost)) is not None:
            self._notify(event, result.error)

    async def anotify_settled(self, result: SettleResult) -> None:
        """See notify_settled()."""
        self.left_as = result.state
        if (event := _event_of(result, self.lost)) is not None:
            await self._anotify(event, result.error)

    def _notify(self, event: str, error: BaseException | None = None) -> None:
        self._sink(event, self, error)

    async def _anotify(self, event: str, error: BaseException | None = None) -> None:
        asend = getattr(self._sink, "asend", None)
        if asend is None:
            self._notify(event, error)
        else:
            await asend(event, self, error)


_EVENT_OF_VERDICT = {Replay: "replayed", Busy: "busy", Mismatch: "mismatched", Unreadable: "unreadable"}
_EVENT_OF = {
    SettledState.COMPLETED: "completed",
    SettledState.FREE: "released",
    SettledState.BOUND: "released",
    SettledState.SUSPENDED: "suspended",
    None: "lost",
}


def _abandoned(run: Execute) -> SettledState:
    """Return how to state a record whose work has not begun. One of a crashed owner must be taken over again."""
    if run.resumed:
        return SettledState.SUSPENDED
    return SettledState.HELD if run.takeover else SettledState.BOUND


def _event_of(result: SettleResult, lost: Exception | None) -> str | None:
    """Return the event of a settle, or `None`."""
    if result.deferred:
        return "deferred"
    return _EVENT_OF[result.state] if result.state is not None or lost is None else None
