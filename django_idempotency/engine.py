"""One call under a key: open, execute, settle. Ring 2: it drives a store by the rules and knows no Django."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from typing import Protocol

from .core import rules
from .core.records import Guarantee, Outcome, Record, Settlement, Ticket, changed
from .core.rules import Busy, Ending, Execute, Leave, Mismatch, Replay, Verdict
from .errors import IdempotencyError, LostRace, OutcomeUnknown, OwnershipLost, StoreUnavailable
from .finishing import to_the_end
from .heartbeat import heartbeat
from .stores.base import BaseStore, Hold
from .suspension import Execution, apassed_on, awoken, passed_on, woken
from .waiting import pauses, waiting

#: A settle that could not be written is tried again after so many seconds, as long as not so many have passed: with
#: one more timeout of a store, an answer that is done comes a second later at most.
SETTLE_PAUSE, SETTLE_PATIENCE = 0.1, 0.6
#: Rounds of claim and guard before the answer is Busy. Each lost round means that somebody else won.
ROUNDS = 2
#: Seconds: a lease is never none, or the host's deadline would be read as a crash.
LEAST_LEASE = 0.001
#: Before a guard, and where there is none.
NOTHING_HELD = Hold()


class Observer(Protocol):
    """Who is told what happened. `event` is one of `EVENTS`. From async code its coroutine `asend` is, if it has one."""

    def __call__(self, event: str, operation: Operation, error: BaseException | None = None) -> None: ...


#: claimed (first run), taken_over, resumed, replayed, busy, mismatched; then completed, released, suspended, or lost: it
#: was no longer ours.
EVENTS = (
    *("claimed", "replayed", "busy", "mismatched", "taken_over", "resumed"),
    *("completed", "released", "suspended", "lost"),
)


class Operation:
    """A call that wants to run under a ticket: `open()` it, run the work if the verdict says so, then `settle()` it.

    It lives in one thread (or task), and serves one call.
    """

    run: Execute | None = None
    #: The record as the claim or the guard found it.
    record: Record | None = None
    #: Why the record is no longer ours although the work still runs; `lease` only.
    lost: Exception | None = None
    #: The durable execution that makes the call, if one does; `lease` only.
    execution: Execution | None = None
    _hold = NOTHING_HELD
    #: The guard, while it is open.
    _guard: ExitStack | None = None
    _opened_at = 0.0
    #: Has a claim of ours got no answer, so that it may have been carried out?
    _unanswered = False
    #: The attempt that our execution has suspended, if it was found, and nobody else has woken it.
    resuming = 0

    def __init__(  # noqa: PLR0917 - by position, as every call makes one (see `records.fact`)
        self,
        store: BaseStore,
        ticket: Ticket,
        observer: Observer,
        hold_failures: bool = False,
        renews: bool = True,
        left: Callable[[], float | None] | None = None,
    ) -> None:
        self.store = store
        self.ticket = ticket
        self._tell = observer
        self._hold_failures = hold_failures
        #: Does the heartbeat renew its lease? Not where the host stops when the lease ends.
        self._renews = renews
        #: Seconds until the host stops, and with it the lease.
        self._left = left

    @property
    def attempt(self) -> int:
        """Which run of this key it is: above 1, an earlier one failed, was refused or crashed."""
        return self.run.attempt if self.run else 0

    def is_lost(self) -> bool:
        """May another own the record by now, although the work still runs?"""
        return self.lost is not None or heartbeat.lapsed(self)

    # --------------------------------------------------------------------------------------------------------- open

    def open(self, wait: float = 0.0, waiters: int = 0) -> Verdict:
        """Claim the key and hold the record. Only after `Execute` may the work run, and then settle() must follow.

        Raises `StoreUnavailable`; nothing has run then. A busy record is waited for up to `wait` seconds, unless a
        quarter of the process's threads wait already. `waiters` may do so however few threads there are.
        """
        verdict = self._try()
        if isinstance(verdict, Busy) and wait > 0:
            with waiting.one_more(least=waiters) as admitted:
                for pause, left in pauses(wait) if admitted else ():
                    began = time.monotonic()
                    with suppress(StoreUnavailable):
                        self.store.wait(self.ticket, seconds=left)
                    time.sleep(max(0.0, pause - (time.monotonic() - began)))
                    self._shorten()
                    try:
                        verdict = self._try()
                    except StoreUnavailable:  # busy is what was known last
                        self._unanswered = True
                    if not isinstance(verdict, Busy):
                        break
        try:
            self._tell(self._opened(verdict), self)
        except BaseException:
            self.abandon()
            raise
        return verdict

    async def aopen(self, wait: float = 0.0) -> Verdict:
        """See open(). Waiting holds no thread. Whoever cancels it leaves the key as it was: nothing has run."""
        try:
            verdict = await to_the_end(self._atry())
            for pause, _ in pauses(wait) if isinstance(verdict, Busy) else ():
                await asyncio.sleep(pause)
                self._shorten()
                try:
                    verdict = await to_the_end(self._atry())
                except StoreUnavailable:
                    self._unanswered = True
                if not isinstance(verdict, Busy):
                    break
            await self._atell(self._opened(verdict))
        except BaseException:
            await to_the_end(self.aabandon())
            raise
        return verdict

    def _shorten(self) -> None:
        """Let a lease end when the host stops, also where the claim had to wait."""
        if self._left is not None and not self._renews and (left := self._left()) is not None:
            self.ticket = changed(self.ticket, lease=max(left, LEAST_LEASE))

    def _try(self) -> Verdict:
        for _ in range(ROUNDS):
            try:
                self.record = self.store.claim(self.ticket)
                verdict = rules.read(self.record, self.ticket, self._unanswered, self.resuming)
                if self.execution is not None and self._sleeps_here(verdict, self.record):
                    self.record = woken(self.store, self.ticket, self.record)
                    verdict = self._woken(self.record)
                if not isinstance(verdict, Execute) or self.ticket.guarantee is not Guarantee.ATOMIC:
                    return verdict
                if (held := self._enter_guard(verdict)) is not None:
                    return held
            except LostRace:
                continue
        return Busy(retry_after=1)

    async def _atry(self) -> Verdict:
        for _ in range(ROUNDS):
            with suppress(LostRace):
                self.record = await self.store.aclaim(self.ticket)
                verdict = rules.read(self.record, self.ticket, self._unanswered, self.resuming)
                if self.execution is not None and self._sleeps_here(verdict, self.record):
                    self.record = await awoken(self.store, self.ticket, self.record)
                    verdict = self._woken(self.record)
                if isinstance(verdict, Execute):
                    # Now, since who is cancelled hears of no verdict.
                    self.run, self._opened_at = verdict, time.monotonic()
                return verdict
        return Busy(retry_after=1)

    def _sleeps_here(self, verdict: Verdict, record: Record) -> bool:
        """Has our own execution suspended what is busy?"""
        if self.execution is None or not isinstance(verdict, Busy) or not self.execution.suspended(record):
            return False
        self.resuming = record.attempt
        return True

    def _woken(self, record: Record) -> Verdict:
        if not rules.owned(record, self.ticket):
            self.resuming = 0
        return rules.read(record, self.ticket, self._unanswered, self.resuming)

    def _enter_guard(self, claimed: Execute) -> Verdict | None:
        """Lock the record and judge it again as it is now. `None`: not ours, nothing is held."""
        assert self.record is not None
        with ExitStack() as guard:
            takeover = self.record.owner != self.ticket.owner
            self._hold = guard.enter_context(self.store.guard(self.ticket, takeover=takeover))
            if not self._hold.joins:
                verdict: Verdict | None = claimed
            elif self._hold.record is None:
                verdict = None
            else:
                self.record = self._hold.record
                verdict = rules.read(self.record, self.ticket)
            if isinstance(verdict, Execute):
                self._guard = guard.pop_all()
            else:
                self._hold.give_up()
            return verdict

    def _opened(self, verdict: Verdict) -> str:
        """Take note of a verdict, and say which event it is. A claim that no other thread sees is not renewed by one."""
        if isinstance(verdict, Execute):
            self.run, self._opened_at = verdict, time.monotonic()
            if self._renews and not self._hold.joins and self.record is not None and not self.record.joined:
                heartbeat.watch(self)
            return "taken_over" if verdict.takeover else "resumed" if verdict.resumed else "claimed"
        return _EVENT_OF_VERDICT[type(verdict)]

    # ------------------------------------------------------------------------------------------------------- settle

    def tell_lost(self) -> None:
        """Tell that the heartbeat has set `lost`: another may own the record by now. The work may ask, and stop."""
        self._tell("lost", self, self.lost)

    def aside(self) -> AbstractContextManager[None]:
        """Let others use the work's transaction without breaking it, while there is one."""
        return nullcontext() if self._guard is None else self._hold.aside()

    def abandon(self) -> None:
        """Leave a record whose work has not begun as it was. For any other verdict than `Execute` there is nothing to do."""
        if self.run is None:
            return
        heartbeat.forget(self)
        self._end_guard(giving_up=True)
        self._settle_apart(_abandoned(self.run), None, None)

    async def aabandon(self) -> None:
        """See abandon()."""
        if self.run is not None:
            heartbeat.forget(self)
            await self._asettle_apart(_abandoned(self.run), None, None)

    def close(self) -> None:
        """Roll back and end a guard that was left open, as by an interrupt between two lines. After settle() there is none."""
        self._end_guard(giving_up=True)

    def doomed(self) -> bool:
        """Will what the work has written be rolled back, whatever it answers?"""
        return self._hold.doomed()

    def give_up(self) -> None:
        """Roll back what the work wrote, where that is ours to roll back. To be followed by settle()."""
        self._hold.give_up()

    def settle(self, ended: Ending, outcome: Outcome | None = None, ttl: float | None = None) -> None:
        """Settle or release the record and end the guard, as the table in `core.rules` says.

        Raises `OwnershipLost` when another owns the record and `StoreUnavailable` when it could not be written (our
        writes were rolled back), what COMMIT raised (the writes are gone), `OutcomeUnknown` (nobody knows), and what an
        `on_commit` callback raised (all is committed).
        """
        heartbeat.forget(self)
        if not self._hold.joins:
            leave = rules.conclude(ended, False, self._hold_failures).leave
            self._settle_apart(leave, outcome, ttl)
            return
        try:
            self._settle_held(ended, outcome, ttl)
        finally:
            self._end_guard(giving_up=True)  # where something unforeseen left it open

    def _settle_held(self, ended: Ending, outcome: Outcome | None, ttl: float | None) -> None:
        hold = self._hold
        if ended in (Ending.KEPT, Ending.DROPPED) and hold.broken():
            self._roll_back()
            raise StoreUnavailable
        conclusion = rules.conclude(ended, hold.doomed(), self._hold_failures)
        committing = conclusion.commit and self._settle_joined(conclusion.leave, outcome, ttl)
        if not committing:
            hold.give_up()
        try:
            self._end_guard()
        except Exception as error:
            if hold.committed:  # an on_commit callback failed, after COMMIT: all of it stands
                self._told(conclusion.leave)
            elif isinstance(error, OutcomeUnknown):
                self._tell("lost", self, error)
            else:
                self._settle_apart(rules.conclude(Ending.FAILED, doomed=True).leave, None, None)
            raise
        if hold.committed and committing:
            self._told(conclusion.leave)
        else:  # rolled back: as the table says, or since the transaction was marked for rollback late
            self._settle_apart(conclusion.leave, outcome, ttl)

    async def asettle(self, ended: Ending, outcome: Outcome | None = None, ttl: float | None = None) -> None:
        """See settle(). No transaction is held in an async call."""
        heartbeat.forget(self)
        leave = rules.conclude(ended, False, self._hold_failures).leave
        await self._asettle_apart(leave, outcome, ttl)

    def _settle_joined(self, leave: Leave, outcome: Outcome | None, ttl: float | None) -> bool:
        """Settle inside the work's transaction. `False`: that was marked for rollback meanwhile.

        Raises `OwnershipLost` or `StoreUnavailable` after all of it was rolled back. Then the work had not given up
        its writes: it was our statement that failed, so its answer must not stay without them.
        """
        settlement = self._settlement(leave, self.ticket, outcome, ttl, time.monotonic())
        assert settlement is not None
        try:
            settled = self.store.settle(self.ticket, settlement)
        except IdempotencyError as error:
            self._roll_back()
            if isinstance(error, LostRace):
                raise OwnershipLost from error
            raise
        if not settled:
            self._end_guard(giving_up=True)
            self._told(None)
            raise OwnershipLost
        return not self._hold.doomed()

    def _roll_back(self) -> None:
        """End the guard without what the work wrote, and release the record."""
        self._end_guard(giving_up=True)
        self._settle_apart(rules.conclude(Ending.FAILED, doomed=True).leave, None, None)

    def _settle_apart(self, leave: Leave, outcome: Outcome | None, ttl: float | None) -> None:
        """Settle after the work's transaction, or where there was none; fenced, so an overtaken owner changes nothing."""
        began = time.monotonic()
        ticket = self._asleep() if leave is Leave.SUSPENDED else self.ticket
        settlement = self._settlement(leave, ticket, outcome, ttl, began)
        if settlement is None:
            return
        while True:
            try:
                if ticket.guarantee is Guarantee.ATOMIC:
                    settled = self._settle_guarded(settlement)
                elif leave is Leave.SUSPENDED:
                    settled = passed_on(self.store, ticket, settlement)
                else:
                    settled = self.store.settle(ticket, settlement)
            except Exception as error:  # noqa: BLE001 - the answer stands; the record is taken over after its lease
                if _too_late(began):
                    self._told(None, None if isinstance(error, LostRace) else error)
                    return
                time.sleep(SETTLE_PAUSE)
            else:
                self._told(leave if settled else None)
                return

    def _settle_guarded(self, settlement: Settlement) -> bool:
        with self.store.guard(self.ticket) as hold:
            return self._still_ours(hold) and self.store.settle(self.ticket, settlement)

    def _still_ours(self, hold: Hold) -> bool:
        """Has nobody settled the record since our rollback? The owner from whom we took over may have woken in between.

        Raises `LostRace` where somebody holds it: a waiter does, for an instant, and then it is to be tried again.
        """
        if not hold.joins:
            return True
        if hold.record is None:
            raise LostRace
        return self.record is None or rules.untouched(hold.record, self.record, self.ticket)

    async def _asettle_apart(self, leave: Leave, outcome: Outcome | None, ttl: float | None) -> None:
        """See _settle_apart()."""
        began = time.monotonic()
        ticket = self._asleep() if leave is Leave.SUSPENDED else self.ticket
        settlement = self._settlement(leave, ticket, outcome, ttl, began)
        if settlement is None:
            return
        while True:
            try:
                if leave is Leave.SUSPENDED:
                    settled = await apassed_on(self.store, ticket, settlement)
                else:
                    settled = await self.store.asettle(ticket, settlement)
            except Exception as error:  # noqa: BLE001 - the same
                if _too_late(began):
                    await self._atell("lost", error)
                    return
                await asyncio.sleep(SETTLE_PAUSE)
            else:
                if settled or self.lost is None:
                    await self._atell(_EVENT_OF[leave if settled else None])
                return

    def _end_guard(self, *, giving_up: bool = False) -> None:
        """End the guard, once; if it is open, and by a rollback if asked to."""
        guard, self._guard = self._guard, None
        if guard is not None:
            if giving_up:
                self._hold.give_up()
            guard.close()

    def _asleep(self) -> Ticket:
        """Return the ticket under which our execution lets the record sleep."""
        assert self.execution is not None and self.record is not None, "who is suspended has run"  # noqa: PT018
        return self.execution.asleep(self.record, self.ticket)

    def _settlement(
        self, leave: Leave, ticket: Ticket, outcome: Outcome | None, ttl: float | None, now: float
    ) -> Settlement | None:
        assert self.run is not None, "settle() follows an open() that said Execute"
        if leave is Leave.SUSPENDED and self.record is not None:
            return rules.handover(self.record, ticket)
        if ttl is None and now - self._opened_at >= ticket.ttl:
            ttl = ticket.ttl  # the work took longer than its answer was to be kept
        return rules.settlement(leave, ticket, self.run, self.record, outcome, ttl)

    async def _atell(self, event: str, error: BaseException | None = None) -> None:
        tell = getattr(self._tell, "asend", None)
        if tell is None:
            self._tell(event, self, error)
        else:
            await tell(event, self, error)

    def _told(self, leave: Leave | None, error: Exception | None = None) -> None:
        if leave is not None or self.lost is None:  # the heartbeat has told already
            self._tell(_EVENT_OF[leave], self, error)


_EVENT_OF_VERDICT = {Replay: "replayed", Busy: "busy", Mismatch: "mismatched"}
_EVENT_OF = {
    Leave.COMPLETED: "completed",
    Leave.FREE: "released",
    Leave.BOUND: "released",
    Leave.SUSPENDED: "suspended",
    None: "lost",
}


def _abandoned(run: Execute) -> Leave:
    """Say what becomes of a record whose work has not begun. One of a crashed owner must be a takeover again."""
    if run.resumed:
        return Leave.SUSPENDED
    return Leave.HELD if run.takeover else Leave.BOUND


def _too_late(began: float) -> bool:
    """Is it too late to try a settle once more?"""
    return time.monotonic() - began + SETTLE_PAUSE > SETTLE_PATIENCE
