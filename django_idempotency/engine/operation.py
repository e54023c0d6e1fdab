"""What calls of both guarantees share: claim a key, wait for a busy one, report.

`atomic` and `lease` contain what each guarantee does between its claim and its settle.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from typing import Any, Protocol

from ..core import conclusions
from ..core.conclusions import SettledState, WorkResult
from ..core.records import Outcome, Record, Settlement, Ticket
from ..core.rules import Busy, Execute, Late, Mismatch, Replay, Unreadable, Verdict
from ..errors import LostRace, RecordUnreadable, StoreUnavailable
from ..stores.base import BaseStore
from .deadlines import ENDS, time_for
from .waiting import pauses, wait_slots

#: The most claims before the verdict is Busy. Each time, another request won the race.
ROUNDS = 2


class EventSink(Protocol):
    """Receives each event. Async code calls its coroutine `asend` if it has one.

    `event` is claimed (first run), taken_over, resumed, replayed, busy, mismatched or unreadable; then completed, released,
    suspended, or lost (no longer ours). In between, deferred: the store did not respond, and is retried in the background.

    If it has a true attribute `commits`, its `committing(event, operation)` is called with "completed" in the transaction
    that settles a record of `atomic`, before its COMMIT. The `IdempotencyError` that it raises undoes the settle.
    """

    def __call__(self, event: str, operation: Operation, error: BaseException | None = None) -> None: ...


class Operation:
    """A call that wants to run under a ticket: `open()` it, run the work if the verdict says so, then `settle()` it.

    It lives in one thread (or task), and serves one call.
    """

    run: Execute | None = None
    #: The record as the claim or the guard found it.
    record: Record | None = None
    #: How settle() left the record; `None`: it was not settled, or not by this operation.
    left_as: SettledState | None = None
    #: Was the claim made inside an open transaction, so that it may be rolled back with the work?
    claimed_inside = False
    #: What settle() was asked to store.
    outcome: Outcome | None = None
    #: What the sink keeps from one event of this operation to the next.
    kept_by_sink: Any = None
    #: Seconds that open() has waited for a busy record.
    waited = 0.0
    _opened_at = 0.0

    def __init__(self, store: BaseStore, ticket: Ticket, sink: EventSink, *, on_failure: str = "free") -> None:
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
        """The number of this run of the key. If it is above 1, an earlier run failed, was refused or crashed."""
        return self.run.attempt if self.run else 0

    def age(self) -> timedelta:
        """Return how long ago the operation began, by the clock of its store: with the first claim of its key."""
        assert self.run is not None and self.record is not None, "its work runs"  # noqa: PT018
        since = timedelta(seconds=time.monotonic() - self._opened_at)
        return since if self.run.new_life else self.record.read_at - self.record.created_at + since

    def is_lost(self) -> bool:
        """May another own the record by now, while the work still runs?"""
        return False

    # --------------------------------------------------------------------------------------------------------- open

    def open(self, wait: float = 0.0) -> Verdict:
        """Claim the key and hold the record. The work may run only after `Execute`, and then settle() must follow.

        Raises `StoreUnavailable`, and `DeadlinePassed` from a deadline on; then nothing has run. Waits up to `wait`
        seconds for a busy record, unless as many threads of the process wait already as may (`WaitSlots`).
        """
        hurries = ENDS.get() is not None
        if hurries:
            wait = time_for(wait)
        try:
            verdict = self._claim()
            if isinstance(verdict, Busy) and wait > 0:
                verdict = self._wait(verdict, wait)
            if hurries and isinstance(verdict, Execute):
                time_for(0)
            self.sink(event_of(verdict), self)
        except BaseException:
            self.abandon()
            raise
        return verdict

    def _wait(self, busy: Verdict, wait: float) -> Verdict:
        """Claim a busy key again until it is free or `wait` seconds have passed."""
        started = time.monotonic()
        with wait_slots.acquire() as admitted:
            for pause, left in pauses(wait) if admitted else ():
                began = time.monotonic()
                with suppress(StoreUnavailable):
                    self.store.wait(self.ticket, seconds=left)
                time.sleep(max(0.0, pause - (time.monotonic() - began)))
                busy = self._claim_again(busy)
                if not isinstance(busy, Busy):
                    break
        self.waited = time.monotonic() - started
        return busy

    def _claim(self) -> Verdict:
        """Claim the key and judge its record. After `Execute`, abandon() restores it."""
        for _ in range(ROUNDS):
            try:
                record = self.store.claim(self.ticket)
                self._found(record)
                verdict = self._judge(record)
            except LostRace:
                continue
            except RecordUnreadable:
                return Unreadable()
            if verdict is not None:
                return verdict
        return Busy(retry_after=1)

    async def _aclaim(self) -> Verdict:
        """See _claim()."""
        for _ in range(ROUNDS):
            try:
                record = await self.store.aclaim(self.ticket)
                self._found(record)
                verdict = await self._ajudge(record)
            except LostRace:
                continue
            except RecordUnreadable:
                return Unreadable()
            if verdict is not None:
                return verdict
        return Busy(retry_after=1)

    def _judge(self, record: Record) -> Verdict | None:
        """Read the record that a claim found, and hold it if the work may run. `None`: it has changed, so claim again."""
        raise NotImplementedError

    async def _ajudge(self, record: Record) -> Verdict | None:
        """See _judge(). Only `lease` has async calls."""
        raise NotImplementedError

    def _claim_again(self, busy: Verdict) -> Verdict:
        """Claim a key that was busy. If the store does not respond, return its last known state."""
        try:
            return self._claim()
        except StoreUnavailable:
            return busy

    def _found(self, record: Record) -> None:
        """Note a record, and where a claim found it: another connection, or this one later, may look elsewhere."""
        self.record, self.claimed_inside = record, record.joined
        if record.location is not None:
            self.ticket = self.ticket._replace(location=record.location)

    def _committing(self, state: SettledState) -> Callable[[str, Operation], None] | None:
        """Return what the sink writes with in the transaction that has just completed the record; `None`: it does not."""
        sink: Any = self.sink
        return sink.committing if state is SettledState.COMPLETED and getattr(sink, "commits", False) else None

    def _begin(self, run: Execute) -> None:
        """Note that the record is ours, so the work may begin."""
        self.run, self._opened_at = run, time.monotonic()

    # ------------------------------------------------------------------------------------------------------- settle

    def abandon(self) -> None:
        """Restore a record whose work has not begun. Does nothing after any verdict except `Execute`."""
        raise NotImplementedError

    async def aabandon(self) -> None:
        """See abandon(). Only `lease` has async calls."""
        raise NotImplementedError

    def settle(self, ended: WorkResult, outcome: Outcome | None = None, ttl: float | None = None) -> None:
        """Settle or release the record, by the table in `core.conclusions`. `ttl` is seconds; `None`: as the ticket says.

        `outcome` is the response that is kept, or the note on a failure (`core.failures`).

        With `lease` it raises nothing of ours; for `atomic` see `AtomicOperation.settle`.
        """
        raise NotImplementedError

    async def asettle(self, ended: WorkResult, outcome: Outcome | None = None, ttl: float | None = None) -> None:
        """See settle(). Only `lease` has async calls."""
        raise NotImplementedError

    def _settlement(
        self, state: SettledState, outcome: Outcome | None, ttl: float | None, *, transaction_id: str | None = None
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
        )

    # ------------------------------------------------------------------------------------- the work's own transaction

    def close(self) -> None:
        """Roll back and end a transaction that was left open, such as by an interrupt. After settle() there is none."""

    def needs_rollback(self) -> bool:
        """Will the work's writes be rolled back, whatever its response is?"""
        return False

    def set_rollback(self) -> None:
        """Roll back the work's writes if we hold its transaction. settle() must follow."""

    def savepoint(self) -> AbstractContextManager[None]:
        """Protect the work's transaction, if we hold it, from failures of other code inside it."""
        return nullcontext()


def event_of(verdict: Verdict) -> str:
    """Return the event of a verdict."""
    if isinstance(verdict, Execute):
        return "taken_over" if verdict.takeover else "resumed" if verdict.resumed else "claimed"
    return _EVENT_OF_VERDICT[type(verdict)]


_EVENT_OF_VERDICT = {Replay: "replayed", Busy: "busy", Mismatch: "mismatched", Late: "late", Unreadable: "unreadable"}
#: Keyed by how the record was left; `None`: it was no longer ours.
EVENT_OF_STATE = {
    SettledState.COMPLETED: "completed",
    SettledState.FREE: "released",
    SettledState.BOUND: "released",
    SettledState.FORGOTTEN: "released",
    SettledState.SUSPENDED: "suspended",
    None: "lost",
}
