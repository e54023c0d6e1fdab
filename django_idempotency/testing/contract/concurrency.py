"""Many calls at one moment, from several processes if these can reach the store: one runs, and none
fails.

The verbs are also called by the threads of one event loop. The last tests ask whether an order explains all that clients
see who fail, die, return late and retry.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, TypeVar
from uuid import uuid4

import django
import pytest
from asgiref.sync import async_to_sync

from ...core import conclusions, rules
from ...core.conclusions import SettledState
from ...core.records import Guarantee, Outcome, Settlement, Status, Ticket
from ...core.rules import Busy, Execute, Mismatch, Replay
from ...engine.threads import in_thread_of
from ...errors import InProgress, LostRace
from ...stores.base import BaseStore
from ..linearizability import Answer, Call, History, assert_linearizable
from ..tickets import make_ticket
from .base import Contract

T = TypeVar("T")
#: What one of many does. To be picklable for another process, it is a function of a module, or a
#: `partial` of one.
Act = Callable[[BaseStore], T]

#: Seconds until a missing participant is given up.
PATIENCE = 60
PROCESSES = 4


def claimed(ticket: Ticket, store: BaseStore) -> rules.Verdict:
    """Claim and read.

    After a lost race it tries once more; all claim one key, so it is then busy.
    """
    for _ in range(2):
        try:
            return rules.read(store.claim(ticket), ticket)
        except (InProgress, LostRace):
            continue
    return rules.Busy(retry_after=1)


def settled(ticket: Ticket, settlement: Settlement, store: BaseStore) -> bool:
    """Settle. After a lost race nothing is settled."""
    try:
        return store.settle(ticket, settlement)
    except LostRace:
        return False


def together(
    store: BaseStore, acts: Sequence[Act[T]], *, when: Callable[[], object] = lambda: None
) -> list[T]:
    """Run each act in its own thread.

    All are connected first, and released at one moment: when `when` returns.
    """
    ready = threading.Barrier(len(acts) + 1)
    start = threading.Barrier(len(acts) + 1)

    def run(act: Act[T]) -> T:
        try:
            store.get(uuid4())
            ready.wait(PATIENCE)
            start.wait(PATIENCE)
            return act(store)
        except BaseException:
            ready.abort()  # no thread is to wait for this one
            raise
        finally:
            store.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        running = [pool.submit(run, act) for act in acts]
        try:
            ready.wait(PATIENCE)
            when()
            start.wait(PATIENCE)
        except threading.BrokenBarrierError:
            start.abort()
        except BaseException:
            start.abort()
            raise
        errors = [error for each in running if (error := each.exception(PATIENCE)) is not None]
        for error in errors:
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [each.result() for each in running]


class Workers:
    """Processes that wait for work. They have this process's environment, settings and import
    path.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._manager = context.Manager()
        self._pool = ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=_begin)

    def act(self, make: Callable[[], BaseStore], acts: Sequence[Act[T]]) -> list[T]:
        """Distribute the acts, release all at one moment, and return the result of each."""
        shares = [acts[number::PROCESSES] for number in range(min(PROCESSES, len(acts)))]
        start = self._manager.Barrier(len(shares))
        running = [self._pool.submit(_act, make, share, start) for share in shares]
        failed = [
            str(error) for each in running if (error := each.exception(2 * PATIENCE)) is not None
        ]
        assert not failed, "\n".join(failed)
        results: list[Any] = [None] * len(acts)
        for number, each in enumerate(running):
            results[number::PROCESSES] = each.result()
        return results

    def leave(self) -> None:
        self._pool.shutdown()
        self._manager.shutdown()


def _begin() -> None:
    # No verb closes a store for good: its connections end with us.
    warnings.simplefilter("ignore", ResourceWarning)
    if os.environ.get("DJANGO_SETTINGS_MODULE"):
        django.setup()


def _act(
    make: Callable[[], BaseStore], acts: Sequence[Act[T]], start: threading.Barrier
) -> list[T]:
    try:
        return together(make(), acts, when=lambda: start.wait(PATIENCE))
    except Exception:  # noqa: BLE001 - not every error can be sent to another process
        start.abort()
        raise AssertionError(f"In another process:\n{traceback.format_exc()}") from None


# ------------------------------------------------------------------------------------ at one moment

AtOnce = Callable[[Any, Sequence[Act[Any]]], list[Any]]

_WORKERS = pytest.StashKey[Workers]()


class Concurrency(Contract):
    """Tests with `claimers`, in the processes that `elsewhere` gives access to the store, or
    otherwise in threads.
    """

    @pytest.fixture
    def at_once(self, request: pytest.FixtureRequest) -> AtOnce:
        """Return what carries out several acts at the same moment."""
        if not self.shared:
            pytest.skip(f"{type(self).__name__}: others do not see what this store writes.")

        def act(store: Any, acts: Sequence[Act[Any]]) -> list[Any]:
            make = self.elsewhere(store)
            return (
                together(store, acts)
                if make is None
                else workers_of(request.config).act(make, acts)
            )

        return act

    def test_one_key(self, store: BaseStore, at_once: AtOnce) -> None:
        """All claim one key: one runs and the others are busy. Then all read its response."""
        for guarantee in Guarantee if store.supports_atomic else (Guarantee.LEASE,):
            key = guarantee.value
            tickets = [make_ticket(key=key, guarantee=guarantee) for _ in range(self.claimers)]
            verdicts = at_once(store, claims(tickets))
            assert names(verdicts) == {"Execute": 1, "Busy": self.claimers - 1}
            ((owner, run),) = runners(tickets, verdicts)
            assert run == Execute(attempt=1)
            assert self.stored(store, owner).owner == owner.owner
            assert self.done(store, owner, run) is True
            verdicts = at_once(
                store,
                claims(make_ticket(key=key, guarantee=guarantee) for _ in range(self.claimers)),
            )
            assert set(verdicts) == {Replay(outcome=self.outcomes[0], attempt=1)}

    def test_as_many_keys(self, store: BaseStore, at_once: AtOnce) -> None:
        """Each claims its own key: all run, and each owns its record."""
        tickets = [make_ticket(key=f"{number}") for number in range(self.claimers)]
        assert set(at_once(store, claims(tickets))) == {Execute(attempt=1)}
        for ticket in tickets:
            assert self.stored(store, ticket).owner == ticket.owner

    def test_takeovers(self, store: BaseStore, at_once: AtOnce) -> None:
        """All find a lapsed lease, a released key, or an expired response: one runs, as the correct
        attempt.
        """
        terms = {
            "lapsed": (None, Execute(attempt=2, takeover=True)),
            "released": (SettledState.BOUND, Execute(attempt=2)),
            "expired": (SettledState.COMPLETED, Execute(attempt=1)),
        }
        for key, (leave, _) in terms.items():
            ticket = make_ticket(key=key, lease=5, ttl=50 if key == "expired" else 5000)
            store.claim(ticket)
            if leave is not None:
                self.leave(store, ticket, leave, self.outcomes[0])
        self.elapse(store, 60)
        takers = min(self.claimers, 20)
        for key, (_, expected) in terms.items():
            tickets = [make_ticket(key=key) for _ in range(takers)]
            verdicts = at_once(store, claims(tickets))
            assert names(verdicts) == {"Execute": 1, "Busy": takers - 1}
            ((owner, run),) = runners(tickets, verdicts)
            assert (self.stored(store, owner).owner, run) == (owner.owner, expected)

    def test_a_settle_races_a_takeover(self, store: BaseStore, at_once: AtOnce) -> None:
        """A late owner settles or releases during a takeover: exactly one succeeds, and the record
        shows which.
        """
        for number, leave in enumerate((SettledState.COMPLETED, SettledState.BOUND) * 8):
            takers = 1 if number % 4 < 2 else 7  # among many, the settle rarely begins first
            place = number % (takers + 1)
            late = make_ticket(key=f"{number}", lease=5)
            run = self.claim(store, late)
            self.elapse(store, 6)
            tickets = [make_ticket(key=f"{number}") for _ in range(takers)]
            acts: list[Act[Any]] = claims(tickets)
            acts.insert(
                place, partial(settled, late, self.settlement(late, leave, run, self.outcomes[0]))
            )
            verdicts = at_once(store, acts)
            won = verdicts.pop(place)
            record = self.stored(store, late)
            if won and leave is SettledState.COMPLETED:
                assert (record.status, record.owner, record.attempt) == (
                    Status.COMPLETED,
                    late.owner,
                    1,
                )
                assert set(names(verdicts)) <= {"Replay", "Busy"}
            else:  # taken over, or released and claimed immediately
                ((owner, run),) = runners(tickets, verdicts)
                assert (record.status, record.owner, record.attempt) == (
                    Status.RUNNING,
                    owner.owner,
                    2,
                )
                assert run.attempt == 2
                if won:
                    assert run.takeover is False


def workers_of(config: pytest.Config) -> Workers:
    """Return the processes of this test run; starting them takes longer than their work."""
    if _WORKERS not in config.stash:
        config.stash[_WORKERS] = Workers()
        config.add_cleanup(config.stash[_WORKERS].leave)
    return config.stash[_WORKERS]


def claims(tickets: Iterable[Ticket]) -> list[Act[Any]]:
    return [partial(claimed, ticket) for ticket in tickets]


def names(verdicts: Iterable[object]) -> Counter[str]:
    return Counter(type(verdict).__name__ for verdict in verdicts)


def runners(
    tickets: Sequence[Ticket], verdicts: Sequence[rules.Verdict]
) -> list[tuple[Ticket, Execute]]:
    """Return the tickets that may run, each with its verdict."""
    both = zip(tickets, verdicts, strict=True)
    return [(ticket, verdict) for ticket, verdict in both if isinstance(verdict, Execute)]


# -------------------------------------------------------------------------------- in one event loop


class InOneLoop(Contract):
    """Tests of the verbs in the threads of one event loop."""

    def test_a_life_in_one_loop(self, store: BaseStore) -> None:
        """One loop sees a first run, a busy key, another body, a takeover, a late owner, a release
        and replays.
        """

        async def verdict(ticket: Ticket) -> rules.Verdict:
            return rules.read(await in_thread_of(store, store.claim, ticket), ticket)

        async def settle(ticket: Ticket, settlement: Settlement) -> bool:
            return await in_thread_of(store, store.settle, ticket, settlement)

        async def live() -> None:
            first = make_ticket(lease=0)
            second = make_ticket()
            third = make_ticket()
            assert await verdict(first) == Execute(attempt=1)
            assert await verdict(second) == Execute(attempt=2, takeover=True)
            assert isinstance(await verdict(third), Busy)
            assert await verdict(make_ticket(body=b"other")) == Mismatch()
            late = self.settlement(
                first, SettledState.COMPLETED, Execute(attempt=1), self.outcomes[0]
            )
            assert await settle(first, late) is False
            released = self.settlement(second, SettledState.BOUND, Execute(attempt=2))
            assert await settle(second, released) is True
            assert await verdict(third) == Execute(attempt=3)
            for number, outcome in enumerate(self.outcomes):
                ticket = make_ticket(key=f"{number}")
                assert await verdict(ticket) == Execute(attempt=1)
                settlement = self.settlement(
                    ticket, SettledState.COMPLETED, Execute(attempt=1), outcome
                )
                assert await settle(ticket, settlement) is True
                assert await verdict(make_ticket(key=f"{number}")) == Replay(
                    outcome=outcome, attempt=1
                )

        async_to_sync(live)()

    def test_many_tasks(self, store: BaseStore) -> None:
        """Of many tasks with one key in one loop, one runs and the others are busy; with different
        keys, all run.
        """

        async def claim(tickets: list[Ticket]) -> Counter[str]:
            claims = [in_thread_of(store, store.claim, ticket) for ticket in tickets]
            records = await asyncio.gather(*claims)
            return names(
                rules.read(record, ticket) for record, ticket in zip(records, tickets, strict=True)
            )

        one = [make_ticket() for _ in range(20)]
        assert async_to_sync(claim)(one) == {"Execute": 1, "Busy": 19}
        assert async_to_sync(claim)([make_ticket(key=f"{number}") for number in range(20)]) == {
            "Execute": 20
        }


# ---------------------------------------------------------------------------------------- histories

#: How often each client sends its request.
TRIES = 2
#: Key → how a client that may run leaves its record; `None`: as it is, since the client dies. "two"
#: gets two requests.
LEFT = {
    "completes": SettledState.COMPLETED,
    "fails": SettledState.BOUND,
    "dies": None,
    "two": SettledState.COMPLETED,
}


class Histories(Concurrency):
    """Compares nothing with what a test expects: it asks only if all responses together are
    possible.
    """

    def test_a_history(self, store: BaseStore, at_once: AtOnce) -> None:
        """Some fail and some die; after the end of all leases, dead owners return while others take
        over.
        """
        history = History()
        clients = max(3, self.claimers // 10)
        first = [
            *(
                make_ticket(key=key, lease=5)
                for key in LEFT
                if key != "two"
                for _ in range(clients)
            ),
            *(
                make_ticket(key="two", body=body, lease=5)
                for body in (b"one", b"other") * (clients // 2)
            ),
        ]
        note(history, at_once(store, [partial(sent, ticket, LEFT[ticket.key]) for ticket in first]))
        self.elapse(store, 60)
        second = [
            make_ticket(key=key, body=b"one" if key == "two" else b"{}")
            for _ in range(clients)
            for key in LEFT
        ]
        acts: list[Act[list[Call]]] = [
            partial(sent, ticket, SettledState.COMPLETED) for ticket in second
        ]
        acts += [partial(returned, ticket) for ticket in first if LEFT[ticket.key] is None]
        note(history, at_once(store, acts))
        assert_linearizable(history)


def note(history: History, calls: Sequence[list[Call]]) -> None:
    for call in chain.from_iterable(calls):
        history.append(call)


def sent(ticket: Ticket, leave: SettledState | None, store: BaseStore) -> list[Call]:
    """Send a request under a key as often as a client does that retries. One that dies does not."""
    calls: list[Call] = []
    for _ in range(TRIES):
        invoked = time.monotonic()
        answer, response = _answered(ticket, claimed(ticket, store), leave, store)
        calls.append(_call(ticket, invoked, answer, response))
        if answer is Answer.UNKNOWN:
            break
        ticket = make_ticket(key=ticket.key, lease=ticket.lease)._replace(digest=ticket.digest)
    return calls


def _answered(
    ticket: Ticket, verdict: rules.Verdict, leave: SettledState | None, store: BaseStore
) -> tuple[Answer, Outcome | None]:
    match verdict:
        case Execute():
            return (
                (Answer.UNKNOWN, None) if leave is None else _settled(ticket, verdict, leave, store)
            )
        case Replay(outcome=outcome):
            return Answer.REPLAYED, outcome
        case Busy():
            return Answer.BUSY, None
        case Mismatch():
            return Answer.MISMATCH, None
    raise AssertionError(f"The store's record reads {verdict}.")


def _settled(
    ticket: Ticket, run: Execute, leave: SettledState, store: BaseStore
) -> tuple[Answer, Outcome | None]:
    outcome = Outcome(status=201, body=ticket.owner.hex.encode())
    settlement = conclusions.settlement(leave, ticket, run, fence=None, outcome=outcome, ttl=None)
    assert settlement is not None
    if not settled(ticket, settlement, store):
        return Answer.LOST, outcome
    return (Answer.EXECUTED, outcome) if leave is SettledState.COMPLETED else (Answer.FAILED, None)


def returned(ticket: Ticket, store: BaseStore) -> list[Call]:
    """Settle late, after the end of a lease.

    That of a ticket that did not own its record is refused, as any other's.
    """
    invoked = time.monotonic()
    answer, outcome = _settled(ticket, Execute(attempt=1), SettledState.COMPLETED, store)
    return [_call(ticket, invoked, answer, outcome)] if answer is Answer.EXECUTED else []


def _call(ticket: Ticket, invoked: float, answer: Answer, response: Outcome | None) -> Call:
    """Return a call that has ended just now, if it got a response."""
    responded = None if answer is Answer.UNKNOWN else time.monotonic()
    of: dict[str, Any] = {
        "key": ticket.key,
        "client": ticket.owner.hex[:8],
        "request": ticket.digest,
    }
    return Call(**of, invoked=invoked, responded=responded, answer=answer, response=response)
