"""A call under a key: claim it, wait for a busy one, judge what the claim found, settle.

`Operation` is what both guarantees share. `AtomicOperation` locks the record while the work runs,
and settles it in the work's transaction:

    claim   guard ───── the work's transaction ───── settle  COMMIT     the response and the writes, or neither
                                                   └ ROLLBACK  settle   what must be known of it, under the row's lock again

A claim is committed before the work runs, and so is a takeover, which is written under the row's
lock.

It is sync: async calls hold no transaction. `lease` has the other guarantee.
"""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from typing import Any, NoReturn, Protocol

from ..core import conclusions, rules
from ..core.conclusions import Conclusion, Ending, Rollback, SettledState, WorkResult
from ..core.failures import failed_with
from ..core.records import Outcome, Record, Settlement, Status, Ticket, shortened
from ..core.rules import (
    OUTRACED,
    Busy,
    Contended,
    Execute,
    Late,
    Mismatch,
    Race,
    Replay,
    Unreadable,
    Verdict,
)
from ..errors import (
    IdempotencyError,
    InProgress,
    LostRace,
    OutcomeUnknown,
    OwnershipLost,
    RecordUnreadable,
    StoreUnavailable,
    TransactionLost,
    WritesRolledBack,
)
from ..stores.base import BaseStore, Guard, utcnow
from .deadlines import ENDS, time_for
from .waiting import SETTLE_PAUSE, Races, may_retry, pauses, wait_slots

logger = logging.getLogger("django_idempotency")

#: The verdicts after which a call that may wait claims again.
WAITED_FOR = (Busy, Contended)
#: Seconds between the tries to lock a record that was just taken over.
LOOKS = (0.005, 0.01, 0.02, 0.05, 0.1)


class EventSink(Protocol):
    """Receives each event, in the thread in which the operation is opened or settled.

    `event` is claimed (first run), taken_over, resumed, replayed, busy, contended, mismatched or
    unreadable; then completed, released, suspended, or lost (no longer ours). In between, deferred:
    the store did not respond, and is retried in the background.

    If it has a true attribute `commits`, its `committing(event, operation)` is called with
    "completed" in the transaction that settles a record of `atomic`, before its COMMIT. The
    `IdempotencyError` that it raises undoes the settle.
    """

    def __call__(
        self, event: str, operation: Operation, error: BaseException | None = None
    ) -> None: ...


class Listening(Protocol):
    """Hears of the events of an operation."""

    def heard(self, event: str) -> None:
        """Take note of an event. Raises nothing."""


class Operation:
    """A call that wants to run under a ticket: `open()` it, run the work if the verdict says so,
    then `settle()` it.

    It lives in one thread (or task), and serves one call.
    """

    run: Execute | None = None
    #: The record as the claim or the guard found it.
    record: Record | None = None
    #: How settle() left the record; `None`: it was not settled, or not by this operation.
    left_as: SettledState | None = None
    #: Was the claim made inside an open transaction, so that it may be rolled back with the work?
    claimed_inside = False
    #: Does the claim stay, whatever becomes of the work and of the server? See `Record.durable`.
    claim_is_durable = True
    #: Is the record in a transaction of the project's, such as that of ATOMIC_REQUESTS? An
    #: exception that leaves the call rolls both back.
    is_inside = False
    #: What settle() was asked to store.
    outcome: Outcome | None = None
    #: The call as its extensions see it; `None`: it has none.
    details: Listening | None = None
    #: What the sink keeps from one event of this operation to the next.
    kept_by_sink: Any = None
    #: Is wrote() asked when the work has ended? Set before open().
    counts_writes = False
    #: Is its settle waiting to be retried in the background?
    deferred = False
    #: Seconds that open() has waited for a busy record.
    waited = 0.0
    _opened_at = 0.0

    def __init__(
        self, store: BaseStore, ticket: Ticket, sink: EventSink, *, on_failure: str = "free"
    ) -> None:
        self.store = store
        self.ticket = ticket
        self.sink = sink
        self._on_failure = on_failure

    @property
    def key(self) -> str:
        """The idempotency key, as plain text: what the work stores or sends is its own."""
        return str(self.ticket.key)

    @property
    def attempt(self) -> int:
        """The number of this run of the key.

        If it is above 1, an earlier run failed, was refused or crashed.
        """
        return self.run.attempt if self.run else 0

    @property
    def may_have_acted(self) -> bool:
        """May an earlier attempt have begun its work?

        Also where nothing is known of the key, as without the store.

        That is certain only if `claim_is_durable`.
        """
        run = self.run
        return run is None or run.attempt > 1 or run.takeover or run.resumed

    def age(self) -> timedelta:
        """Return how long ago the operation began, by the clock of its store: with the first claim
        of its key.
        """
        assert self.run is not None and self.record is not None, "its work runs"  # noqa: PT018
        since = timedelta(seconds=time.monotonic() - self._opened_at)
        return since if self.run.new_life else self.record.read_at - self.record.created_at + since

    def is_lost(self) -> bool:
        """May another own the record by now, while the work still runs?"""
        return False

    # ----------------------------------------------------------------------------------------- open

    def open(self, wait: float = 0.0) -> Verdict:
        """Claim the key and hold the record.

        The work may run only after `Execute`, and then settle() must follow.

        Raises `StoreUnavailable`, and `DeadlinePassed` from a deadline on; then nothing has run.
        Waits up to `wait` seconds for a busy record, unless as many threads of the process wait
        already as may (`WaitSlots`).
        """
        if ENDS.get() is not None:
            wait = time_for(wait)
        try:
            verdict = self.claim()
            if wait > 0 and isinstance(verdict, WAITED_FOR):
                verdict = self._wait(verdict, wait)
            self.opened(verdict)
        except BaseException:
            wait_slots.leave()  # an interrupt may have cut it where it waited
            self.abandon()
            raise
        return verdict

    def _wait(self, busy: Verdict, wait: float) -> Verdict:
        """Claim a busy key again until it is free or `wait` seconds have passed."""
        started = time.monotonic()
        try:
            for pause, left in pauses(wait) if wait_slots.enter() else ():
                began = time.monotonic()
                with suppress(StoreUnavailable):
                    self.store.wait(self.ticket, seconds=left)
                time.sleep(max(0.0, pause - (time.monotonic() - began)))
                busy = self.claim_again(busy)
                if not isinstance(busy, WAITED_FOR):
                    break
        finally:
            wait_slots.leave()
        self.waited = time.monotonic() - started
        return busy

    def opened(self, verdict: Verdict) -> None:
        """Report the verdict on which an open ends.

        Raises `DeadlinePassed` if the work may run, but not begin any more.
        """
        if not isinstance(verdict, Execute):
            self.sink(EVENT_OF_VERDICT[type(verdict)], self)
            return
        if ENDS.get() is not None:
            time_for(0)
        first = "resumed" if verdict.resumed else "claimed"
        self.sink("taken_over" if verdict.takeover else first, self)

    def claim(self) -> Verdict:
        """Claim the key and judge its record. After `Execute`, abandon() restores it."""
        races: Races | None = None
        while True:
            try:
                record = self.store.claim(self.ticket)
                if record.digest != self.ticket.digest and self._adopts(record):
                    continue
                self.record = record
                self.claimed_inside = record.joined
                self.claim_is_durable = record.durable
                self.is_inside = record.joined and not record.durable
                if record.location is not None:
                    # Another connection, or this one later, may look elsewhere.
                    self.ticket = self.ticket._replace(location=record.location)
                verdict = self._judge(record)
            except LostRace:
                race = Race.CONFLICT
            except InProgress:
                race = Race.HELD
            except RecordUnreadable:
                return Unreadable()
            else:
                if verdict is not None:
                    return verdict
                race = Race.HELD
            races = races or Races()
            pause = races.lost(race)
            if pause is None:
                return OUTRACED[race]
            time.sleep(pause)

    def _judge(self, record: Record) -> Verdict | None:
        """Read the record that a claim found, and hold it if the work may run.

        `None`: it has changed, so claim again.
        """
        raise NotImplementedError

    def claim_again(self, busy: Verdict) -> Verdict:
        """Claim a key that was busy. If the store does not respond, return its last known state."""
        try:
            return self.claim()
        except StoreUnavailable:
            return busy

    def _adopts(self, record: Record) -> bool:
        """Take a record's digest if another expression made it: then it does not say that this is
        another request.

        The work goes on as the same operation, with the same derived keys. Return whether to claim
        again.
        """
        if not rules.incomparable(record, self.ticket):
            return False
        logger.warning(
            "%s: the key %s is known from a release with another validate=…, so what that "
            "selects is not compared.",
            self.ticket.path,
            shortened(self.ticket.key),
        )
        self.ticket = self.ticket._replace(digest=record.digest, request_id=record.request_id)
        return True

    def _begin(self, run: Execute) -> None:
        """Note that the record is ours, so the work may begin."""
        self.run = run
        self._opened_at = time.monotonic()

    # --------------------------------------------------------------------------------------- settle

    def abandon(self) -> None:
        """Restore a record whose work has not begun.

        Does nothing after any verdict except `Execute`.
        """
        raise NotImplementedError

    def settle(self, ending: Ending) -> None:
        """Settle or release the record, by the tables in `core.conclusions`.

        Raises `WritesRolledBack` for a success whose writes an error has rolled back. With `lease`
        it raises nothing else of ours; for `atomic` see `AtomicOperation.settle`.
        """
        raise NotImplementedError

    def _log_rollback(self, error: BaseException | None) -> None:
        """Log that a success is withheld, with the error that the work has caught."""
        ticket = self.ticket
        logger.error(
            "%s %s responded with success, but had caught an error for which the database "
            "rolled back what it wrote: %s. "
            "The response was not sent, and a retry runs it again. Give what may fail its "
            "own atomic().",
            ticket.method or "The function",
            ticket.path or ticket.scope,
            "that of a statement sent past Django" if error is None else type(error).__name__,
            exc_info=error,
        )

    def _settlement(
        self,
        state: SettledState,
        outcome: Outcome | None,
        ttl: float | None,
        *,
        transaction_id: str | None = None,
        alone: bool = False,
    ) -> Settlement | None:
        """Return what to write, in the given transaction or in any; `None` if nothing is."""
        assert self.run is not None, "settle() follows an open() that said Execute"
        self.outcome = outcome
        worked = time.monotonic() - self._opened_at
        return conclusions.settlement(
            state,
            self.ticket,
            self.run,
            fence=self.record,
            outcome=outcome,
            ttl=ttl,
            worked=worked,
            transaction_id=transaction_id,
            alone=alone,
        )

    # ------------------------------------------------------------------- the work's own transaction

    def close(self) -> None:
        """Leave nothing behind, wherever an interrupt has cut the call: no open transaction, no
        lease that is renewed.

        May be called any number of times. After settle() it does nothing.
        """

    def needs_rollback(self) -> bool:
        """Will the work's writes be rolled back, whatever its response is?"""
        return False

    def set_rollback(self) -> None:
        """Roll back the work's writes if we hold its transaction. settle() must follow."""

    def wrote(self) -> bool:
        """Has the work written what will be committed in the store's database? In doubt it has."""
        return True

    def savepoint(self) -> AbstractContextManager[None]:
        """Protect the transaction that is open on the store's connection, ours or a caller's, from
        failures of other code inside it.
        """
        return self.store.savepoint()


#: Of a call that does not run.
EVENT_OF_VERDICT: dict[type[Verdict], str] = {
    Replay: "replayed",
    Busy: "busy",
    Contended: "contended",
    Mismatch: "mismatched",
    Late: "late",
    Unreadable: "unreadable",
}
#: Keyed by how the record was left; `None`: it was no longer ours.
EVENT_OF_STATE = {
    SettledState.COMPLETED: "completed",
    SettledState.FREE: "released",
    SettledState.BOUND: "released",
    SettledState.FORGOTTEN: "released",
    SettledState.SUSPENDED: "suspended",
    None: "lost",
}


# ------------------------------------------------------------------------------------------- atomic

#: Before a guard is entered.
NO_GUARD = Guard()


class AtomicOperation(Operation):
    """A call whose record and writes are committed together."""

    _guard = NO_GUARD
    #: The last guard without work inside it: close() ends what an interrupt has left of it.
    _brief = NO_GUARD
    #: The context that ends the guard, while it is open.
    _held: AbstractContextManager[Guard] | None = None

    # ----------------------------------------------------------------------------------------- open

    def _judge(self, record: Record) -> Verdict | None:
        """See Operation._judge().

        Locks the record if the work may run, and judges it anew if that is not what was found.
        """
        verdict: Verdict | None = rules.read(record, self.ticket)
        if not isinstance(verdict, Execute):
            return verdict
        mine = record.owner == self.ticket.owner
        try:
            if not mine and not record.joined:
                return self._take_over()
            held = self.store.guard(
                self.ticket, takeover=not mine, claimed=record if mine else None
            )
            guard = self._guard = held.__enter__()
        except LostRace:
            if mine or record.status is not Status.RUNNING:
                raise
            # SQLite does not show whose lock it is. The record says that another has begun, and has
            # not ended.
            return None
        self._held = held
        try:
            if guard.record is None:
                verdict = None
            elif guard.record is not record:
                self.record = guard.record
                verdict = rules.read(guard.record, self.ticket)
            if isinstance(verdict, Execute):
                guard.mark()
                if self.counts_writes:
                    guard.count_writes()
                self._begin(verdict)
                return verdict
        except BaseException as error:
            self._held = None
            held.__exit__(type(error), error, error.__traceback__)
            raise
        self.close()
        return verdict

    def _take_over(self) -> Verdict | None:
        """Take a record over, and then hold it like one of our own claim.

        `None`: it has changed, so claim again.
        """
        taken = self._written_takeover()
        if not isinstance(taken, Record):
            return taken
        self.record = taken
        for pause in LOOKS:
            verdict = self._judge(taken)
            if verdict is not None:
                return verdict
            # Another who has read it as free looks at it, and finds that it is ours.
            time.sleep(pause)
        return None

    def _written_takeover(self) -> Record | Verdict | None:
        """Write under the row's lock that the record is ours, commit that, and return it.

        `None`: another holds it.
        """
        verdict: Verdict | None = None
        try:
            with self.store.guard(self.ticket, takeover=True) as guard:
                self._brief = guard
                found = guard.record
                if found is not None:
                    self.record = found
                    verdict = rules.read(found, self.ticket)
                if found is None or not isinstance(verdict, Execute):
                    guard.set_rollback()
                    return verdict
                settlement = conclusions.takeover(found, self.ticket, verdict, guard.transaction_id)
                if not self.store.commit(guard, self.ticket, settlement):
                    return None
        except OwnershipLost:
            return None
        except (OutcomeUnknown, TransactionLost) as error:  # the work has not begun
            raise StoreUnavailable from error
        return conclusions.settled(self.ticket, found, settlement, found.read_at)._replace(
            taken=verdict.takeover
        )

    def abandon(self) -> None:
        self.close()
        if self.run is not None:
            self._settle_apart(conclusions.withdrawn(self.run))

    # ------------------------------------------------------------------- the work's own transaction

    def close(self) -> None:
        held = self._held
        try:
            if held is not None:
                self._guard.set_rollback()
                held.__exit__(None, None, None)
        finally:
            self._brief.restore()
            self._guard.restore()
            self._held = None

    def needs_rollback(self) -> bool:
        return self._guard.needs_rollback()

    def set_rollback(self) -> None:
        self._guard.set_rollback()

    def wrote(self) -> bool:
        return self._guard.wrote()

    def savepoint(self) -> AbstractContextManager[None]:
        return super().savepoint() if self._held is None else self._guard.savepoint()

    # --------------------------------------------------------------------------------------- settle

    def settle(self, ending: Ending) -> None:
        """Settle as the base class says, and end the guard.

        Raises `OwnershipLost` when another call owns the record, and `StoreUnavailable` or
        `LostRace` when it could not be written (our writes were rolled back), what the guard has
        refused the work, `WritesRolledBack` when an error rolls the writes of a success back,
        `TransactionLost` when the work has ended our transaction, the error of a failed COMMIT (the
        writes are gone), `OutcomeUnknown` (either may be true), and the error of an `on_commit`
        callback (everything is committed).
        """
        try:
            conclusion = self._conclude(ending)
            if conclusion.withheld:
                self._withhold(conclusion.state)
            if conclusion.commit:
                self._commit(conclusion.state, ending)
            else:
                self.close()
                self._settle_apart(conclusion.state, ending.outcome, ending.ttl)
        except BaseException:
            self.close()
            raise

    def _conclude(self, ending: Ending) -> Conclusion:
        """Return how the call ends by the rules.

        Raises what the guard has refused, and `TransactionLost`.
        """
        guard = self._guard
        remembered = ending.work_result in (WorkResult.KEPT, WorkResult.DROPPED)
        if remembered and guard.refused is not None:
            raise self._rolled_back(guard.refused)
        cause = guard.rollback_cause()
        if remembered and (cause is not Rollback.NONE or not guard.finds_loss):
            if guard.lost():
                raise self._rolled_back(TransactionLost())
            cause = guard.rollback_cause()  # again: the database may have given the transaction up
        if ending.undone is Rollback.ERROR:
            cause = ending.undone
        return conclusions.conclude(
            ending.work_result, cause, self._on_failure, succeeded=ending.succeeded
        )

    def _withhold(self, state: SettledState) -> NoReturn:
        """Roll back, and leave the record of a success that is none."""
        error = self._guard.error
        withheld = WritesRolledBack.by(error)
        self.close()
        self._log_rollback(error)
        note = failed_with(error or withheld, at=utcnow())
        self._settle_apart(state, note, why=withheld)
        raise withheld from error

    def _commit(self, state: SettledState, ending: Ending) -> None:
        """Settle in the work's transaction and commit it, or raise after everything was rolled
        back.
        """
        guard = self._guard
        settlement = self._settlement(
            state, ending.outcome, ending.ttl, transaction_id=guard.transaction_id
        )
        assert settlement is not None, "what is not written is not committed"
        try:
            writes = getattr(self.sink, "commits", False) and self._write_event(state)
            is_broken = writes and guard.needs_rollback()
            if not is_broken and not self.store.commit(guard, self.ticket, settlement):
                raise OwnershipLost  # noqa: TRY301 - handled as the store's own
        except Exception as error:
            if guard.committed:  # an on_commit callback failed: everything is committed
                self._report(state)
                raise
            self.close()
            if isinstance(error, OutcomeUnknown):
                self._report(None, error)
            elif isinstance(error, OwnershipLost):
                self._report(None)
            else:
                self._release(error if isinstance(error, TransactionLost) else None, cause=error)
            raise
        if is_broken:  # what was written with it has broken the transaction
            if ending.succeeded:
                self._withhold(conclusions.FAILED_AS[self._on_failure])
            self.close()
            self._settle_apart(state, ending.outcome, ending.ttl)
            return
        held = self._held
        self._held = None
        if held is not None and held is not guard:  # a store around another has more to end
            held.__exit__(None, None, None)
        self._report(state)

    def _write_event(self, state: SettledState) -> bool:
        """Let the sink write the event of a completion in its transaction.

        `False`: it writes nothing there.
        """
        sink: Any = self.sink
        if state is not SettledState.COMPLETED or not getattr(sink, "commits", False):
            return False
        sink.committing(EVENT_OF_STATE[state], self)
        return True

    def _rolled_back(self, why: IdempotencyError) -> IdempotencyError:
        """Roll the work's writes back, release the record, and return the reason."""
        self.close()
        self._release(why)
        return why

    def _release(self, why: Exception | None = None, *, cause: Exception | None = None) -> None:
        """Release the record of a failed call after its rollback, and note the `cause`."""
        state = conclusions.conclude(WorkResult.FAILED, Rollback.ERROR).state
        self._settle_apart(state, failed_with(why or cause, at=utcnow()), why=why)

    def _settle_apart(
        self,
        state: SettledState,
        outcome: Outcome | None = None,
        ttl: float | None = None,
        *,
        why: Exception | None = None,
    ) -> None:
        """Settle after the work's transaction was rolled back.

        If that fails, the response is still sent.
        """
        settlement = self._settlement(state, outcome, ttl)
        if settlement is None:
            self.left_as = state
            return
        if self._is_rolled_back() and state is not SettledState.COMPLETED:
            self._report(state, why)
            return
        began = time.monotonic()
        while True:
            try:
                settled = self._settle_restored(state, settlement)
            except Exception as error:  # noqa: BLE001 - see above
                self._brief.restore()
                if not may_retry(began):
                    self._report(None, None if isinstance(error, LostRace) else error)
                    return
            else:
                self._report(state if settled else None, why)
                return
            time.sleep(SETTLE_PAUSE)

    def _is_rolled_back(self) -> bool:
        """Is the record rolled back with a caller's transaction that an error has broken?"""
        return self.claimed_inside and self._guard.needs_rollback()

    def _settle_restored(self, state: SettledState, settlement: Settlement) -> bool:
        """Settle the record as the rollback has restored it. Return whether we owned it."""
        if self._settle_locked(state, settlement):
            return True
        # The rollback may have undone the claim as well.
        return (
            self.claimed_inside
            and rules.owned(self.store.claim(self.ticket), self.ticket)
            and self._settle_locked(state, settlement)
        )

    def _settle_locked(self, state: SettledState, settlement: Settlement) -> bool:
        with suppress(OwnershipLost), self.store.guard(self.ticket) as guard:
            self._brief = guard
            if not self._is_still_ours(guard, settlement):
                return False
            self._write_event(state)
            return self.store.commit(guard, self.ticket, settlement)
        return False

    def _is_still_ours(self, guard: Guard, settlement: Settlement) -> bool:
        """Is the record still unsettled since our rollback?

        The owner that we took over from may have resumed.

        Raises `LostRace` while another call holds it, as a waiter does for an instant. Then try
        again.
        """
        if guard.record is None and self.claimed_inside:
            return False
        if guard.record is None:
            raise LostRace
        return self.record is None or rules.untouched(
            guard.record, self.record, self.ticket, settlement
        )

    def _report(self, state: SettledState | None, error: Exception | None = None) -> None:
        self.left_as = state
        self.sink(EVENT_OF_STATE[state], self, error)
