"""Calls with `atomic`: the record is locked while the work runs, and settled in the work's transaction.

claim   guard ───── the work's transaction ───── settle  COMMIT     the response and the writes, or neither
                                               └ ROLLBACK  settle   what must be known of it, under the row's lock again

Sync only: async calls hold no transaction.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime, timezone
from typing import NoReturn

from ..core import conclusions, rules
from ..core.conclusions import Conclusion, SettledState, WorkResult
from ..core.failures import failed_with
from ..core.records import Outcome, Record, Settlement
from ..core.rules import Execute, Verdict
from ..errors import IdempotencyError, LostRace, OutcomeUnknown, OwnershipLost, TransactionLost
from ..stores.base import Guard
from .operation import EVENT_OF_STATE, Operation
from .waiting import SETTLE_PAUSE, may_retry

#: Before a guard is entered.
NO_GUARD = Guard()


class AtomicOperation(Operation):
    """A call whose record and writes are committed together."""

    _guard = NO_GUARD
    #: The context that ends the guard, while it is open.
    _held: AbstractContextManager[Guard] | None = None

    # --------------------------------------------------------------------------------------------------------- open

    def _judge(self, record: Record) -> Verdict | None:
        """See Operation._judge(). Locks the record if the work may run, and judges it anew if that is not what was found."""
        verdict: Verdict | None = rules.read(record, self.ticket)
        if not isinstance(verdict, Execute):
            return verdict
        mine = record.owner == self.ticket.owner
        held = self.store.guard(self.ticket, takeover=not mine, claimed=record if mine else None)
        guard = self._guard = held.__enter__()
        self._held = held
        try:
            if guard.record is None:
                verdict = None
            elif guard.record is not record:
                self.record = guard.record
                verdict = rules.read(guard.record, self.ticket)
            if isinstance(verdict, Execute):
                guard.mark()
                self._begin(verdict)
                return verdict
        except BaseException as error:
            self._held = None
            held.__exit__(type(error), error, error.__traceback__)
            raise
        self.close()
        return verdict

    def abandon(self) -> None:
        self.close()
        if self.run is not None:
            self._settle_apart(conclusions.abandoned(self.run))

    # ------------------------------------------------------------------------------------- the work's own transaction

    def close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._guard.set_rollback()
            held.__exit__(None, None, None)

    def needs_rollback(self) -> bool:
        return self._guard.needs_rollback()

    def set_rollback(self) -> None:
        self._guard.set_rollback()

    def savepoint(self) -> AbstractContextManager[None]:
        return nullcontext() if self._held is None else self._guard.savepoint()

    # ------------------------------------------------------------------------------------------------------- settle

    def settle(self, ended: WorkResult, outcome: Outcome | None = None, ttl: float | None = None) -> None:
        """See Operation.settle(). Ends the guard.

        Raises `OwnershipLost` when another call owns the record and `StoreUnavailable` when it could not be written
        (our writes were rolled back), what the guard has refused the work, `TransactionLost` when the work has ended our
        transaction, the error of a failed COMMIT (the writes are gone), `OutcomeUnknown` (either may be true), and the
        error of an `on_commit` callback (everything is committed).
        """
        try:
            conclusion = self._conclude(ended)
            committing = conclusion.commit and self._settle_inside(conclusion.state, outcome, ttl)
            if not committing:
                self._guard.set_rollback()
        except BaseException:
            self.close()
            raise
        self._end(conclusion.state, committing, outcome, ttl)

    def _conclude(self, ended: WorkResult) -> Conclusion:
        """Return how the call ends by the rules. Raises what the guard has refused, and `TransactionLost`."""
        guard = self._guard
        remembered, undone = ended in (WorkResult.KEPT, WorkResult.DROPPED), guard.needs_rollback()
        if remembered and guard.refused is not None:
            self._roll_back(guard.refused)
            raise guard.refused
        if remembered and (undone or not guard.finds_loss) and guard.lost():
            self._lose()
        return conclusions.conclude(ended, undone, self._on_failure)

    def _end(self, state: SettledState, committing: bool, outcome: Outcome | None, ttl: float | None) -> None:
        """End the guard, and report what has become of the call."""
        guard, held, self._held = self._guard, self._held, None
        try:
            if held is not None:
                held.__exit__(None, None, None)
        except Exception as error:
            if guard.committed:  # an on_commit callback failed after COMMIT: everything is committed
                self._report(state)
            elif isinstance(error, OutcomeUnknown):
                self._report(None, error)
            elif isinstance(error, OwnershipLost):
                self._report(None)
            else:
                self._release(error if isinstance(error, TransactionLost) else None, cause=error)
                if isinstance(error, LostRace):
                    raise OwnershipLost from error
            raise
        if guard.committed and committing:
            self._report(state)
        else:  # rolled back, by the rules or because the transaction was marked for rollback late
            self._settle_apart(state, outcome, ttl)

    def _settle_inside(self, state: SettledState, outcome: Outcome | None, ttl: float | None) -> bool:
        """Settle in the work's transaction. `False`: it was marked for rollback in the meantime.

        Raises `OwnershipLost`, `TransactionLost` or `StoreUnavailable` after everything was rolled back. The work had
        not given up its writes: our own statement failed, so its response must not be kept without them.
        """
        guard = self._guard
        settlement = self._settlement(state, outcome, ttl, transaction_id=guard.transaction_id)
        assert settlement is not None
        marked = False
        try:
            settled = self.store.settle(self.ticket, settlement)
            if settled and (committing := self._committing(state)) is not None:
                committing(EVENT_OF_STATE[state], self)
                marked = guard.needs_rollback()
        except LostRace as error:
            self._roll_back(cause=error)
            raise OwnershipLost from error
        except IdempotencyError as error:
            if guard.transaction_id is not None and guard.lost():
                self._lose(error)
            self._roll_back(cause=error)
            raise
        if not settled:
            guard.set_rollback()
            if guard.lost():
                self._lose()
            self.close()
            self._report(None)
            raise OwnershipLost
        return not marked

    def _lose(self, cause: Exception | None = None) -> NoReturn:
        """Discard a response whose transaction is not the one that the guard began."""
        lost = TransactionLost()
        self._roll_back(lost)
        raise lost from cause

    def _roll_back(self, why: Exception | None = None, *, cause: Exception | None = None) -> None:
        """End the guard without the work's writes, release the record, and report the reason if there is one."""
        self.close()
        self._release(why, cause=cause)

    def _release(self, why: Exception | None = None, *, cause: Exception | None = None) -> None:
        """Release the record of a failed call after its rollback, and note the `cause`."""
        state = conclusions.conclude(WorkResult.FAILED, needs_rollback=True).state
        self._settle_apart(state, failed_with(why or cause, at=datetime.now(timezone.utc)), why=why)

    def _settle_apart(
        self,
        state: SettledState,
        outcome: Outcome | None = None,
        ttl: float | None = None,
        *,
        why: Exception | None = None,
    ) -> None:
        """Settle after the work's transaction was rolled back. If that fails, the response is still sent."""
        settlement = self._settlement(state, outcome, ttl)
        if settlement is None:
            self.left_as = state
            return
        began = time.monotonic()
        while True:
            try:
                settled = self._settle_restored(state, settlement)
            except Exception as error:  # noqa: BLE001 - see above
                if not may_retry(began):
                    self._report(None, None if isinstance(error, LostRace) else error)
                    return
            else:
                self._report(state if settled else None, why)
                return
            time.sleep(SETTLE_PAUSE)

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
            settled = self._is_still_ours(guard, settlement) and self.store.settle(self.ticket, settlement)
            if settled and (committing := self._committing(state)) is not None:
                committing(EVENT_OF_STATE[state], self)
            return settled
        return False

    def _is_still_ours(self, guard: Guard, settlement: Settlement) -> bool:
        """Is the record still unsettled since our rollback? The owner that we took over from may have resumed.

        Raises `LostRace` while another call holds it, as a waiter does for an instant. Then try again.
        """
        if guard.record is None and self.claimed_inside:
            return False
        if guard.record is None:
            raise LostRace
        return self.record is None or rules.untouched(guard.record, self.record, self.ticket, settlement)

    def _report(self, state: SettledState | None, error: Exception | None = None) -> None:
        self.left_as = state
        self.sink(EVENT_OF_STATE[state], self, error)
