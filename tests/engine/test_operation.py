"""One call under a key: what happens, in which order, and which events are sent."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import pytest

from django_idempotency.core.conclusions import Ending, Rollback, WorkResult
from django_idempotency.core.records import Guarantee, Outcome, Record, Status, Ticket
from django_idempotency.core.rules import TRIES, Busy, Contended, Execute, Mismatch, Race, Replay
from django_idempotency.engine import threads
from django_idempotency.engine.deferring import Deferring
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.engine.operation import AtomicOperation, Operation
from django_idempotency.engine.waiting import wait_slots
from django_idempotency.errors import (
    InProgress,
    LostRace,
    OutcomeUnknown,
    OwnershipLost,
    StoreUnavailable,
    TransactionLost,
    WritesRolledBack,
)
from django_idempotency.testing.tickets import NOW, make_ticket

from ..support.fakes import FakeGuard, FakeStore, Listener, record_of

HELD, CONFLICTS = TRIES[Race.HELD], TRIES[Race.CONFLICT]
TICKET = make_ticket(guarantee=Guarantee.ATOMIC)
LEASED = TICKET._replace(guarantee=Guarantee.LEASE)
OTHER = UUID(int=7)
OUTCOME = Outcome(status=201, body=b"")

OURS = record_of(TICKET)
THEIRS = record_of(TICKET, owner=OTHER)
LAPSED = record_of(TICKET, owner=OTHER, lease_until=NOW)
DONE = record_of(TICKET, owner=OTHER, status=Status.COMPLETED, outcome=OUTCOME)
#: LAPSED after our takeover of it.
TAKEN = record_of(TICKET, attempt=2, taken=True)
TAKEOVER = ["claim", "guard", "settle", "commit", "guard"]
CHANGED = record_of(TICKET, owner=OTHER, digest=b"other")


def operation(store: FakeStore, *, lease: bool = False, **options: Any) -> tuple[Any, Listener]:
    listener = Listener()
    made = (LeaseOperation if lease else AtomicOperation)(
        store, LEASED if lease else TICKET, listener, **options
    )
    return made, listener


def opened(store: FakeStore, *, lease: bool = False, **options: Any) -> tuple[Any, Listener]:
    call, listener = operation(store, lease=lease, **options)
    assert isinstance(call.open(), Execute)
    listener.events.clear()
    return call, listener


# --------------------------------------------------------------------------------------------- open


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a lost race, claim again at once."""
    monkeypatch.setattr("django_idempotency.core.rules.RACE_PAUSE", 0.0)


@pytest.mark.parametrize(
    ("claims", "locks", "verdict", "trace", "event"),
    [
        ([OURS], [OURS], Execute(attempt=1), ["claim", "guard"], "claimed"),
        # One trip to the store.
        (
            [DONE],
            [],
            Replay(outcome=OUTCOME, attempt=1),
            ["claim"],
            "replayed",
        ),
        ([THEIRS], [], Busy(retry_after=30), ["claim"], "busy"),
        ([CHANGED], [], Mismatch(), ["claim"], "mismatched"),
        ([LAPSED], [LAPSED, TAKEN], Execute(attempt=2, takeover=True), TAKEOVER, "taken_over"),
        # Another looks at the lock of our takeover.
        (
            [LAPSED],
            [LAPSED, None, TAKEN],
            Execute(attempt=2, takeover=True),
            [*TAKEOVER, "rollback", "guard"],
            "taken_over",
        ),
        # The lock shows the current record: its owner has finished in the meantime.
        (
            [LAPSED],
            [DONE],
            Replay(outcome=OUTCOME, attempt=1),
            ["claim", "guard", "rollback"],
            "replayed",
        ),
        ([LAPSED], [CHANGED], Mismatch(), ["claim", "guard", "rollback"], "mismatched"),
        # Its owner is alive: the row is locked. Look again; each lost round means that another call
        # has won.
        (
            [LAPSED, DONE],
            [None],
            Replay(outcome=OUTCOME, attempt=1),
            ["claim", "guard", "rollback", "claim"],
            "replayed",
        ),
        (
            [LAPSED] * HELD,
            [None] * HELD,
            Busy(retry_after=1),
            ["claim", "guard", "rollback"] * HELD,
            "busy",
        ),
        # An owner of the key has not committed its claim: it is running. Anybody else who is in the
        # way proves nothing.
        ([InProgress()] * HELD, [], Busy(retry_after=1), ["claim"] * HELD, "busy"),
        ([InProgress(), DONE], [], Replay(outcome=OUTCOME, attempt=1), ["claim"] * 2, "replayed"),
        ([LostRace(), OURS], [OURS], Execute(attempt=1), ["claim", "claim", "guard"], "claimed"),
        (
            [OURS, DONE],
            [LostRace()],
            Replay(outcome=OUTCOME, attempt=1),
            ["claim", "guard", "claim"],
            "replayed",
        ),
        # SQLite shows no more than that: its record says that another has begun.
        (
            [LAPSED] * HELD,
            [LostRace()] * HELD,
            Busy(retry_after=1),
            ["claim", "guard"] * HELD,
            "busy",
        ),
        (
            [LostRace()] * 4 + [OURS],
            [OURS],
            Execute(attempt=1),
            [*["claim"] * 5, "guard"],
            "claimed",
        ),
        (
            [LostRace()] * CONFLICTS,
            [],
            Contended(retry_after=1),
            ["claim"] * CONFLICTS,
            "contended",
        ),
        (
            [OURS] * CONFLICTS,
            [LostRace()] * CONFLICTS,
            Contended(retry_after=1),
            ["claim", "guard"] * CONFLICTS,
            "contended",
        ),
    ],
)
def test_open(
    claims: list[Any], locks: list[Any], verdict: object, trace: list[str], event: str
) -> None:
    """A call claims, holds what it may run, and reports it once."""
    store = FakeStore(claims=list(claims), locks=list(locks))
    call, listener = operation(store)
    assert call.open() == verdict
    assert (store.trace, listener.events) == (trace, [event])
    assert call.attempt == (verdict.attempt if isinstance(verdict, Execute) else 0)


def test_only_a_takeover_is_impatient() -> None:
    """A takeover never waits for a row lock; our own row may be waited for."""
    mine, theirs = (
        FakeStore(claims=[OURS], locks=[OURS]),
        FakeStore(claims=[LAPSED], locks=[LAPSED, TAKEN]),
    )
    operation(mine)[0].open()
    operation(theirs)[0].open()
    assert (mine.takeovers, theirs.takeovers) == ([False], [True, False])


@pytest.mark.parametrize(
    ("lost", "raised"),
    [(OutcomeUnknown(), StoreUnavailable), (TransactionLost(), StoreUnavailable)],
)
def test_a_takeover_that_is_not_committed(lost: Exception, raised: type[Exception]) -> None:
    """Nothing has run: the store is unavailable, and nobody is told that the outcome is unknown."""
    call, listener = operation(FakeStore(claims=[LAPSED], locks=[LAPSED], fails=lost))
    with pytest.raises(raised) as caught:
        call.open()
    assert (type(caught.value), call.attempt, listener.events) == (StoreUnavailable, 0, [])


def test_a_takeover_that_another_wins() -> None:
    """It claims again, and finds what the other has done."""
    call, _ = operation(FakeStore(claims=[LAPSED, DONE], locks=[LAPSED], fails=OwnershipLost()))
    assert isinstance(call.open(), Replay)


@pytest.mark.parametrize(
    ("claims", "locks"), [([StoreUnavailable()], []), ([OURS], [StoreUnavailable()])]
)
def test_open_without_a_store(claims: list[Any], locks: list[Any]) -> None:
    """If the store does not respond there is no verdict; nothing is held, and no run is
    reported.
    """
    call, listener = operation(store := FakeStore(claims=claims, locks=locks))
    with pytest.raises(StoreUnavailable):
        call.open()
    assert (call.attempt, listener.events, "commit" in store.trace) == (0, [], False)


# ------------------------------------------------------------------------- settle, in a transaction

KEPT_AT_ONCE = ["claim", "guard", "settle", "commit"]
APART = ["claim", "guard", "rollback", "guard", "settle", "commit"]


@pytest.mark.parametrize(
    ("ended", "needs_rollback", "trace", "status", "bound", "event"),
    [
        # The promise: one COMMIT for both.
        (
            WorkResult.KEPT,
            False,
            KEPT_AT_ONCE,
            Status.COMPLETED,
            True,
            "completed",
        ),
        (WorkResult.KEPT, True, APART, Status.COMPLETED, True, "completed"),  # a refusal
        (WorkResult.DROPPED, False, KEPT_AT_ONCE, Status.FREE, False, "released"),
        (WorkResult.DROPPED, True, APART, Status.FREE, False, "released"),
        # Released after the rollback.
        (
            WorkResult.FAILED,
            False,
            APART,
            Status.FREE,
            True,
            "released",
        ),
        (WorkResult.FAILED, True, APART, Status.FREE, True, "released"),
    ],
)
def test_settle(  # noqa: PLR0917 - the columns of the table
    ended: WorkResult,
    needs_rollback: bool,
    trace: list[str],
    status: Status,
    bound: bool,
    event: str,
) -> None:
    """Each ending settles inside the work's transaction, or after its rollback."""
    store = FakeStore(claims=[OURS], locks=[OURS, OURS])
    call, listener = opened(store)
    assert isinstance(call._guard, FakeGuard)
    call._guard.marked = needs_rollback
    call.settle(Ending(ended, OUTCOME, succeeded=not needs_rollback))
    assert (store.trace, listener.events) == (trace, [event])
    assert [(made.status, made.digest != b"") for made in store.settled] == [(status, bound)]


@pytest.mark.parametrize("ended", [WorkResult.KEPT, WorkResult.DROPPED])
def test_a_success_whose_writes_an_error_rolls_back(ended: WorkResult) -> None:
    """It is withheld, whatever would have become of its response, and its record is bound to the
    same request.
    """
    store = FakeStore(claims=[OURS], locks=[OURS, OURS])
    call, listener = opened(store)
    assert isinstance(call._guard, FakeGuard)
    call._guard.marked = True
    with pytest.raises(WritesRolledBack):
        call.settle(Ending(ended, OUTCOME, succeeded=ended is not WorkResult.FAILED))
    assert (store.trace, listener.events) == (APART, ["released"])
    assert [(made.status, made.digest != b"") for made in store.settled] == [(Status.FREE, True)]


def test_a_success_beside_which_another_transaction_was_rolled_back() -> None:
    """Part of what it says is gone, so nothing of it stays."""
    store = FakeStore(claims=[OURS], locks=[OURS, OURS])
    call, _listener = opened(store)
    with pytest.raises(WritesRolledBack):
        call.settle(Ending(WorkResult.KEPT, OUTCOME, undone=Rollback.ERROR, succeeded=True))
    assert store.trace == APART


def test_cut() -> None:
    """After a cancellation nothing is written: the work may still be running.

    The lease simply ends.
    """
    call, listener = opened(store := FakeStore(claims=[OURS], locks=[OURS]))
    call.settle(Ending(WorkResult.CUT))
    assert (store.trace, listener.events) == (["claim", "guard", "rollback"], [])


def test_overtaken() -> None:
    """An owner that has lost its record changes nothing and is notified."""
    call, listener = opened(store := FakeStore(claims=[OURS], locks=[OURS], settles=[False]))
    with pytest.raises(OwnershipLost):
        call.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    assert (store.trace, listener.events) == (["claim", "guard", "settle", "rollback"], ["lost"])


@pytest.mark.parametrize(
    ("error", "raised"), [(StoreUnavailable(), StoreUnavailable), (LostRace(), LostRace)]
)
def test_our_own_statement_fails(error: Exception, raised: type[Exception]) -> None:
    """The work did not give up its writes: when they are lost, its response is not remembered
    either.
    """
    call, listener = opened(
        store := FakeStore(claims=[OURS], locks=[OURS, OURS], settles=[error, True])
    )
    with pytest.raises(raised):
        call.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    assert store.trace == ["claim", "guard", "settle", "rollback", "guard", "settle", "commit"]
    assert (store.settled[-1].status, listener.events) == (Status.FREE, ["released"])


@pytest.mark.parametrize("needs_rollback", [False, True])
@pytest.mark.parametrize("ended", [WorkResult.KEPT, WorkResult.DROPPED])
@pytest.mark.parametrize("transaction_id", [None, "7421"])
def test_a_lost_transaction(
    ended: WorkResult, needs_rollback: bool, transaction_id: str | None
) -> None:
    """A lost transaction is rolled back and released, whatever the response.

    A settle comparing ids saves a check.
    """
    store = FakeStore(
        claims=[OURS],
        locks=[OURS, OURS],
        settles=[False, True] if transaction_id and not needs_rollback else [],
    )
    call, listener = opened(store)
    assert isinstance(call._guard, FakeGuard)
    call._guard.transaction_id, call._guard.gone, call._guard.marked = (
        transaction_id,
        True,
        needs_rollback,
    )
    call._guard.finds_loss = transaction_id is not None
    with pytest.raises(TransactionLost):
        call.settle(Ending(ended, OUTCOME, succeeded=ended is not WorkResult.FAILED))
    tried = ["settle"] if transaction_id and not needs_rollback else []
    assert store.trace == ["claim", "guard", *tried, "rollback", "guard", "settle", "commit"]
    assert (store.settled[0].transaction_id, store.settled[-1].transaction_id) == (
        transaction_id if tried else None,
        None,
    )
    assert (store.settled[-1].status, listener.events) == (Status.FREE, ["released"])
    assert isinstance(listener.errors[-1], TransactionLost)


def test_a_failure_in_a_lost_transaction() -> None:
    """The caller gets the work's own exception: nothing was to be remembered."""
    call, listener = opened(store := FakeStore(claims=[OURS], locks=[OURS, OURS]))
    assert isinstance(call._guard, FakeGuard)
    call._guard.gone = True
    call.settle(Ending(WorkResult.FAILED))
    assert (store.trace, listener.events) == (APART, ["released"])


def test_a_commit_that_fails() -> None:
    """Response and writes are forgotten, the key is free, and the caller gets the error."""
    store = FakeStore(claims=[OURS], locks=[OURS, OURS], fails=ValueError("deferred constraint"))
    call, listener = opened(store)
    with pytest.raises(ValueError, match="deferred"):
        call.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    assert store.trace == ["claim", "guard", "settle", "rollback", "guard", "settle", "commit"]
    assert (store.settled[-1].status, listener.events) == (Status.FREE, ["released"])


def test_an_unknown_outcome() -> None:
    """The outcome is unknown, so nothing is released: the next claim finds out."""
    store = FakeStore(claims=[OURS], locks=[OURS], fails=OutcomeUnknown())
    call, listener = opened(store)
    with pytest.raises(OutcomeUnknown):
        call.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    assert (store.trace.count("settle"), listener.events) == (1, ["lost"])
    assert isinstance(listener.errors[-1], OutcomeUnknown)


def test_on_commit_fails() -> None:
    """An error after COMMIT undoes nothing."""
    store = FakeStore(claims=[OURS], locks=[OURS], on_commit=ValueError("mail"))
    call, listener = opened(store)
    with pytest.raises(ValueError, match="mail"):
        call.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    assert (store.trace, listener.events) == (KEPT_AT_ONCE, ["completed"])


@pytest.mark.parametrize(
    ("locks", "settles"),
    [
        ([OURS, None], []),  # another call holds it
        ([OURS, OURS], [False]),  # another call owns it
        ([OURS, StoreUnavailable()], []),
        ([OURS, OURS], [LostRace()]),
    ],
)
def test_a_release_in_vain(locks: list[Any], settles: list[Any]) -> None:
    """The response is kept although the release failed; the loss is reported once."""
    call, listener = opened(FakeStore(claims=[OURS], locks=locks, settles=settles))
    call.settle(Ending(WorkResult.FAILED))
    assert listener.events == ["lost"]


# -------------------------------------------------------------------------------------------- lease


@pytest.mark.parametrize(
    ("ended", "on_failure", "settled", "events"),
    [
        (WorkResult.KEPT, "free", [Status.COMPLETED], ["completed"]),
        (WorkResult.DROPPED, "hold", [Status.FREE], ["released"]),
        (WorkResult.FAILED, "free", [Status.FREE], ["released"]),
        (WorkResult.FAILED, "hold", [], []),  # on_failure="hold"
        (WorkResult.CUT, "free", [], []),
    ],
)
def test_lease(
    ended: WorkResult, on_failure: str, settled: list[Status], events: list[str]
) -> None:
    """Without a transaction a call is a claim and a settle, both sync and async."""
    store = FakeStore(claims=[record_of(LEASED)])
    call, listener = opened(store, lease=True, on_failure=on_failure)
    call.settle(Ending(ended, OUTCOME, succeeded=ended is not WorkResult.FAILED))
    assert (store.trace, listener.events) == (["claim"] + ["settle"] * len(settled), events)

    twin = FakeStore(claims=[record_of(LEASED)])
    call, twins = operation(twin, lease=True, on_failure=on_failure)

    async def run() -> None:
        assert await threads.aopen(call) == Execute(attempt=1)
        await threads.in_thread_of(
            call.store,
            call.settle,
            Ending(ended, OUTCOME, succeeded=ended is not WorkResult.FAILED),
        )

    asyncio.run(run())
    assert (twin.trace, twin.settled, twins.events) == (
        store.trace,
        store.settled,
        ["claimed", *events],
    )
    assert [made.status for made in twin.settled] == settled


@pytest.mark.parametrize(
    ("answers", "event"),
    [
        ([False], "lost"),  # overtaken: final
        ([StoreUnavailable(), False], "lost"),
        # The last is a driver's own.
        (
            [StoreUnavailable(), LostRace(), ConnectionResetError(), True],
            "completed",
        ),
    ],
)
def test_the_settle_of_a_lease(
    answers: list[Any], event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A settle is retried until the store responds; whatever the result, the client gets the
    response of the work.
    """
    monkeypatch.setattr("django_idempotency.engine.settling.SETTLE_PAUSE", 0.0)
    monkeypatch.setattr("django_idempotency.engine.waiting.SETTLE_PATIENCE", 60.0)
    assert settled_lease(answers) == ([event], len(answers))


@pytest.mark.parametrize("answered", [LostRace(), StoreUnavailable(), ConnectionResetError()])
def test_the_settle_of_a_lease_in_vain(
    answered: Exception, deferring: Deferring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while the response goes out, and the settle is deferred."""
    monkeypatch.setattr("django_idempotency.engine.waiting.SETTLE_PATIENCE", 0.0)
    assert settled_lease([answered]) == (["deferred"], 1)


def settled_lease(answers: list[Any]) -> tuple[list[str], int]:
    """Settle with a store that responds like this; return the events and the number of tries, async
    as sync.
    """
    call, listener = opened(
        store := FakeStore(claims=[record_of(LEASED)], settles=list(answers)), lease=True
    )
    call.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    call, twins = operation(
        twin := FakeStore(claims=[record_of(LEASED)], settles=list(answers)), lease=True
    )
    asyncio.run(threads.aopen(call))
    asyncio.run(
        threads.in_thread_of(
            call.store, call.settle, Ending(WorkResult.KEPT, OUTCOME, succeeded=True)
        )
    )
    assert (["claimed", *listener.events], store.trace.count("settle")) == (
        twins.events,
        twin.trace.count("settle"),
    )
    return listener.events, store.trace.count("settle")


@pytest.mark.parametrize(
    ("claims", "verdict", "event"),
    [
        ([LostRace()] * CONFLICTS, Contended(retry_after=1), "contended"),
        ([InProgress()] * HELD, Busy(retry_after=1), "busy"),
        ([*[LostRace()] * 3, record_of(LEASED)], Execute(attempt=1), "claimed"),
    ],
)
def test_aopen_loses_a_race(claims: list[Any], verdict: object, event: str) -> None:
    """An async claim that lost a race is repeated, and ends as a sync one does."""
    for opening in (lambda call: call.open(), lambda call: asyncio.run(threads.aopen(call))):
        call, listener = operation(store := FakeStore(claims=list(claims)), lease=True)
        assert opening(call) == verdict
        assert (listener.events, store.trace) == ([event], ["claim"] * len(claims))


def test_a_call_that_may_wait_waits_after_a_lost_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """`wait=5` outlasts what is in the way of its claim, a request or anything else."""
    monkeypatch.setattr("django_idempotency.engine.waiting.PAUSE", 0.001)
    monkeypatch.setattr("django_idempotency.engine.waiting.wait_slots.most", lambda: 10)
    done = record_of(LEASED, status=Status.COMPLETED, outcome=OUTCOME)
    for opening in (
        lambda call: call.open(wait=20),
        lambda call: asyncio.run(threads.aopen(call, wait=20)),
    ):
        call, listener = operation(FakeStore(claims=[*[LostRace()] * CONFLICTS, done]), lease=True)
        assert opening(call) == Replay(outcome=OUTCOME, attempt=1)
        assert listener.events == ["replayed"]


def test_a_store_that_goes_while_a_twin_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Busy was the last known state: a route that runs without a store must not run beside the
    first call.
    """
    monkeypatch.setattr("django_idempotency.engine.waiting.PAUSE", 0.001)
    theirs = record_of(LEASED._replace(owner=uuid4()))
    for opening in (
        lambda call: call.open(wait=0.01),
        lambda call: asyncio.run(threads.aopen(call, wait=0.01)),
    ):
        monkeypatch.setattr("django_idempotency.engine.waiting.wait_slots.most", lambda: 10)
        call, _ = operation(FakeStore(claims=[theirs, *[StoreUnavailable()] * 100]), lease=True)
        assert isinstance(opening(call), Busy)


@pytest.mark.parametrize(("attempt", "event"), [(1, "claimed"), (2, "taken_over")])
def test_a_claim_whose_answer_was_lost(
    attempt: int, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next claim finds the record ours, but not how: a later attempt counts as a takeover, a
    first one does not.
    """
    monkeypatch.setattr("django_idempotency.engine.waiting.PAUSE", 0.001)
    monkeypatch.setattr("django_idempotency.engine.waiting.wait_slots.most", lambda: 10)
    theirs, ours = record_of(LEASED._replace(owner=uuid4())), record_of(LEASED, attempt=attempt)
    for opening in (
        lambda call: call.open(wait=20),
        lambda call: asyncio.run(threads.aopen(call, wait=20)),
    ):
        call, listener = operation(FakeStore(claims=[theirs, StoreUnavailable(), ours]), lease=True)
        assert opening(call) == Execute(attempt=attempt, takeover=attempt > 1)
        assert listener.events == [event]


def test_a_store_that_goes_is_not_hammered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that fails at once is still followed by a pause."""
    monkeypatch.setattr("django_idempotency.engine.waiting.wait_slots.most", lambda: 10)
    store = FakeStore(
        claims=[record_of(LEASED._replace(owner=uuid4())), *[StoreUnavailable()] * 100]
    )
    waits: list[float] = []

    def wait(ticket: Ticket, *, seconds: float) -> None:
        waits.append(seconds)
        raise StoreUnavailable

    monkeypatch.setattr(store, "wait", wait)
    call, _ = operation(store, lease=True)
    assert isinstance(call.open(wait=0.3), Busy)
    assert len(waits) < 10


def test_a_takeover_that_is_abandoned() -> None:
    """An abandoned takeover does not release the record: the next call must know that an earlier
    owner crashed.
    """

    class Cut(BaseException):
        pass

    def cut(event: str, operation: Operation, error: BaseException | None = None) -> None:
        raise Cut

    for claimed, left in ({"attempt": 2, "taken": True}, []), ({}, [Status.FREE]):
        for opening in (lambda call: call.open(), lambda call: asyncio.run(threads.aopen(call))):
            store = FakeStore(claims=[record_of(LEASED, **claimed)])
            with pytest.raises(Cut):
                opening(LeaseOperation(store, LEASED, cut))
            assert [made.status for made in store.settled] == left


def test_a_settle_that_breaks() -> None:
    """After an unexpected kind of error the guard still ends, without the work's writes, and the
    key is free.
    """
    call, listener = opened(
        store := FakeStore(claims=[OURS], locks=[OURS, OURS], settles=[ZeroDivisionError(), True])
    )
    with pytest.raises(ZeroDivisionError):
        call.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    assert store.trace == ["claim", "guard", "settle", "rollback", "guard", "settle", "commit"]
    assert (store.settled[-1].status, listener.events) == (Status.FREE, ["released"])


def test_an_owner_that_resumes_after_our_rollback() -> None:
    """If the earlier owner completes its work after our failed takeover, before our release, its
    result stays.
    """
    # In a caller's transaction a takeover writes nothing before its settle.
    lapsed = LAPSED._replace(joined=True)
    call, listener = opened(store := FakeStore(claims=[lapsed], locks=[lapsed, DONE]))
    call.settle(Ending(WorkResult.FAILED))
    assert (store.settled, listener.events) == ([], ["lost"])


@pytest.mark.parametrize("status", [201, 422])
def test_a_callers_transaction_that_an_error_breaks(status: int) -> None:
    """The record is rolled back with it, so nothing is written. A failure is not called lost; a
    refusal that was to be remembered is.
    """
    inside = OURS._replace(joined=True)
    store = FakeStore(claims=[inside], locks=[inside, StoreUnavailable()])
    call, listener = opened(store)
    call._guard.marked = True
    call._guard.breaks = True
    with suppress(WritesRolledBack):
        call.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=status == 201))
    assert store.settled == []
    assert listener.events == ["released" if status == 201 else "lost"]


def test_a_claim_that_is_rolled_back_with_the_work() -> None:
    """A claim rolled back with the work in an open transaction is made again, so that the failure
    is known.
    """
    inside = OURS._replace(joined=True)
    call, listener = opened(
        store := FakeStore(claims=[inside, inside], locks=[inside, None, inside])
    )
    call.settle(Ending(WorkResult.FAILED))
    assert store.trace[2:] == ["rollback", "guard", "commit", "claim", "guard", "settle", "commit"]
    assert listener.events == ["released"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_lease_that_is_rolled_back_with_the_work(asynchronous: bool) -> None:
    """In a caller's transaction the outcome is stored under a new claim, unless another call has
    made one.
    """
    inside = record_of(LEASED, joined=True)
    for found, events in ((inside, ["completed"]), (record_of(LEASED, owner=OTHER), ["lost"])):
        call, listener = opened(
            store := FakeStore(claims=[inside, found], settles=[False, True]), lease=True
        )
        if asynchronous:
            asyncio.run(
                threads.in_thread_of(
                    call.store, call.settle, Ending(WorkResult.KEPT, OUTCOME, succeeded=True)
                )
            )
        else:
            call.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
        assert listener.events == events
        assert store.trace == ["claim", "settle", "claim", "settle"][: 4 if found is inside else 3]


def test_a_lease_in_a_transaction_is_not_retried_later(
    deferring: Deferring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other connection sees the record before COMMIT, so our thread would find nothing to
    settle.
    """
    monkeypatch.setattr("django_idempotency.engine.waiting.SETTLE_PATIENCE", 0.0)
    claims, settles = [record_of(LEASED, joined=True)], [StoreUnavailable()]
    call, listener = opened(FakeStore(claims=claims, settles=settles), lease=True)
    call.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    assert (listener.events, list(deferring._waiting)) == (["lost"], [])


class Interrupt(BaseException):
    """The exception of a signal handler, possible between any two lines."""


@pytest.mark.parametrize(
    ("claims", "locks", "trace", "left"),
    [
        ([OURS], [OURS, OURS], APART, [Status.FREE]),
        # An earlier owner has crashed: the next call must take it over, and know that.
        (
            [LAPSED],
            [LAPSED, TAKEN],
            [*TAKEOVER, "rollback"],
            [Status.RUNNING],
        ),
    ],
)
def test_an_interrupt_as_the_work_would_begin(
    claims: list[Any], locks: list[Any], trace: list[str], left: list[Status]
) -> None:
    """The guard is rolled back when the operation is closed, and nothing holds the row."""

    def interrupt(event: str, operation: Operation, error: BaseException | None = None) -> None:
        if event in ("claimed", "taken_over"):
            raise Interrupt

    call = AtomicOperation(store := FakeStore(claims=claims, locks=locks), TICKET, interrupt)
    with pytest.raises(Interrupt):
        call.open()
    assert store.trace == trace
    assert [made.status for made in store.settled] == left
    call.close()
    assert store.trace.count("rollback") == 1


@pytest.mark.parametrize("lease", [False, True])
def test_an_interrupt_while_it_waits(lease: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """We own nothing, so nothing is written, and the slot of the waiting thread is free."""
    monkeypatch.setattr("django_idempotency.engine.waiting.wait_slots.most", lambda: 10)
    call, listener = operation(store := FakeStore(claims=[THEIRS]), lease=lease)
    monkeypatch.setattr(store, "wait", raising(Interrupt))
    with pytest.raises(Interrupt):
        call.open(wait=20)
    assert (store.trace, listener.events, wait_slots.count) == (["claim"], [], 0)


@pytest.mark.parametrize(
    ("claimed", "left", "events"),
    [
        ({}, [Status.FREE], ["claimed", "released"]),
        ({"attempt": 2, "taken": True}, [], ["taken_over"]),
    ],
)
def test_a_cancellation_while_the_claim_is_on_its_way(
    claimed: dict[str, Any], left: list[Status], events: list[str]
) -> None:
    """The pending claim is awaited, and the record is left like one whose work has not begun."""
    call, listener = operation(
        store := SlowStore(claims=[record_of(LEASED, **claimed)]), lease=True
    )
    assert cancelled(call, store)
    assert ([made.status for made in store.settled], listener.events) == (left, events)


class SlowStore(FakeStore):
    """Its claims are pending until `arrived` is set."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.asked = threading.Event()
        self.arrived = threading.Event()

    def claim(self, ticket: Ticket) -> Record:
        self.asked.set()
        assert self.arrived.wait(20)
        return super().claim(ticket)


def test_a_coroutine_that_is_closed_while_the_claim_is_on_its_way() -> None:
    """Nothing can be awaited any more: the record stays as the claim has left it, until its lease
    ends.
    """
    call, _ = operation(store := SlowStore(claims=[record_of(LEASED)]), lease=True)

    async def run() -> None:
        opening = threads.aopen(call)
        opening.send(None)
        assert await asyncio.to_thread(store.asked.wait, 20)
        opening.close()
        store.arrived.set()

    asyncio.run(run())
    assert store.settled == []


def cancelled(call: Any, store: SlowStore) -> bool:
    """Cancel a call while its claim is pending. Return whether the cancellation ended it."""

    async def run() -> bool:
        task: asyncio.Future[Any] = asyncio.ensure_future(threads.aopen(call))
        assert await asyncio.to_thread(store.asked.wait, 20)
        task.cancel()
        await asyncio.sleep(0)
        store.arrived.set()
        await asyncio.wait([task])
        return task.cancelled()

    return asyncio.run(run())


def raising(error: type[BaseException]) -> Any:
    def act(*_: Any, **__: Any) -> None:
        raise error

    return act


def test_a_takeover_by_claim_is_reported() -> None:
    """A `lease` store takes over in the claim itself, and the event is the same as with
    `atomic`.
    """
    call, listener = operation(
        FakeStore(claims=[record_of(LEASED, attempt=2, taken=True)]), lease=True
    )
    assert call.open() == Execute(attempt=2, takeover=True)
    assert listener.events == ["taken_over"]
