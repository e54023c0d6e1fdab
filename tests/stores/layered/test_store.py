"""A layered store keeps its authority's contract; without its front only speed is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from pytest_django import Settings
from redis import Redis

from django_idempotency import conf
from django_idempotency.core import conclusions, rules
from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.interventions import CHANGES, Intervention, erased, released
from django_idempotency.core.records import Guarantee, Record, Settlement, Status, Ticket
from django_idempotency.core.rules import Busy, Execute, Mismatch, Replay
from django_idempotency.engine import threads
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.errors import StoreUnavailable, TransactionLost
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.base import BaseStore, Guard
from django_idempotency.stores.layered import LayeredStore
from django_idempotency.stores.layered.caches import CircuitBreaker, LocalCache, RecordCache
from django_idempotency.stores.layered.store import FRESH, MARKER, UNDER_WAY
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.redis import RedisStore
from django_idempotency.testing import StoreContract
from django_idempotency.testing.clock import elapse
from django_idempotency.testing.contract import Contract
from django_idempotency.testing.contract.claims import Claims, Guards
from django_idempotency.testing.contract.endings import Endings
from django_idempotency.testing.recording import RecordingStore
from django_idempotency.testing.tickets import make_ticket
from tests.support.fakes import Listener
from tests.support.services import REDIS, needs_redis

from ..helpers import OUTCOME, Call, atomic_ticket, committed, effects, elsewhere, row
from ..redis.test_store import shift
from ..test_memory import Clock
from .cache_layers import FarCache, Stopwatch

pytestmark = pytest.mark.either_server  # the authority alone keeps its contract on each

FRONTS: dict[str, Callable[[Stopwatch], RecordCache]] = {
    "local": lambda stopwatch: LocalCache(seconds=1e9, clock=stopwatch),
    "far": FarCache,
}


#: A typical project's layers.
LAYERED = {
    "default": {
        "BACKEND": "django_idempotency.stores.layered.LayeredStore",
        "OPTIONS": {"front": "redis", "authority": "memory"},
    },
    "memory": {"BACKEND": "django_idempotency.stores.memory.MemoryStore"},
    "redis": {"BACKEND": "django_idempotency.stores.redis.RedisStore"},
}


class Layered(Contract):
    """What the contract asks of a layered store, over any front."""

    claimers = 20  # another process has its own front, and the authority's contract tests processes
    examples = 15

    authority: Any

    def behind(self, front: str) -> LayeredStore:
        stopwatch = Stopwatch()
        return LayeredStore(
            front=FRONTS[front](stopwatch), authority=self.made(), seconds=1e9, clock=stopwatch
        )

    def made(self) -> BaseStore:
        raise NotImplementedError

    def elapse(self, store: Any, seconds: float) -> None:
        store._clock.now += seconds

    def vanish(self, store: Any, ticket: Ticket) -> None:
        """Delete the copy, too: a purge deletes only what has expired, so no front has it."""
        store.front.drop(ticket.id)


class TestOverMemory(Layered, StoreContract):
    frozen = True

    @pytest.fixture(params=FRONTS)
    def store(self, request: pytest.FixtureRequest) -> LayeredStore:
        return self.behind(request.param)

    def made(self) -> BaseStore:
        return MemoryStore(clock=Clock())

    def elapse(self, store: Any, seconds: float) -> None:
        super().elapse(store, seconds)
        store.store._clock.now += timedelta(seconds=seconds)

    def vanish(self, store: Any, ticket: Ticket) -> None:
        store.store._records.pop(ticket.id.int, None)
        super().vanish(store, ticket)


class OverORM(Layered):
    def made(self) -> BaseStore:
        return ORMStore()

    def elapse(self, store: Any, seconds: float) -> None:
        super().elapse(store, seconds)
        elapse(seconds)

    def vanish(self, store: Any, ticket: Ticket) -> None:
        IdempotencyRecord.objects.filter(pk=ticket.id).delete()
        super().vanish(store, ticket)


@pytest.mark.any_database  # `TestOverORMBehindRedis` is the one that a server runs
@committed
class TestOverORM(OverORM, StoreContract):
    """As on a server, over a front of this process."""

    @pytest.fixture
    def store(self) -> LayeredStore:
        return self.behind("local")


@pytest.mark.any_database
@committed
class TestOverORMBehindACache(OverORM, Claims, Guards, Endings):
    """What depends on a transaction, over a front that others share. Over memory, which has none,
    it keeps the whole contract.
    """

    @pytest.fixture
    def store(self) -> LayeredStore:
        return self.behind("far")


@pytest.mark.any_database
@pytest.mark.django_db
class TestInsideATransaction(OverORM, StoreContract):
    """As in a test case: nothing is committed, so the front stays empty, and any front behaves
    alike.
    """

    shared = False

    @pytest.fixture
    def store(self) -> LayeredStore:
        return self.behind("far")


# ---------------------------------------------------------------------------------------- its parts


class Layers:
    """A layered store over the ORM store, with everything that a test inspects."""

    def __init__(self) -> None:
        self.stopwatch = Stopwatch()
        self.front = FarCache(self.stopwatch)
        self.authority = RecordingStore(ORMStore())
        self.store = LayeredStore(front=self.front, authority=self.authority, clock=self.stopwatch)

    def call(self, **fields: Any) -> Call:
        return Call(store=self.store, ticket=atomic_ticket(**{"lease": 1, **fields}))

    def age(self, seconds: float) -> None:
        self.stopwatch.now += seconds
        elapse(seconds)

    def asked(self) -> tuple[list[str], list[str]]:
        """Return the front's trips and the authority's verbs since the last call."""
        verbs, self.authority.verbs = self.authority.verbs, []
        return self.front.asked(), verbs

    def copy(self, call: Call) -> Record | None:
        found = self.front.copies.get(call.ticket.id)
        return found[0] if found else None


@pytest.fixture
def layers() -> Layers:
    return Layers()


def nothing(record: Record) -> None:
    """Audit nothing."""


@pytest.mark.django_db(transaction=True)
class TestTrips:
    """The cost of each path: trips to the front, verbs of the authority."""

    def test_the_first(self, layers: Layers) -> None:
        """A first call takes three trips: a lookup, a busy marker, the response."""
        layers.call().run()
        assert layers.asked() == (["peek", "put", "put"], ["claim", "guard", "commit"])

    def test_a_replay(self, layers: Layers, django_assert_num_queries: Any) -> None:
        """A replay takes one trip, without the authority."""
        layers.call().run()
        layers.asked()
        with django_assert_num_queries(0):
            assert layers.call().run() == Replay(outcome=OUTCOME, attempt=1)
        assert layers.asked() == (["peek"], [])

    def test_busy(self, layers: Layers) -> None:
        """A busy call takes one trip, as long as the marker exists."""
        layers.call().open()
        layers.asked()
        assert layers.call().open() == Busy(retry_after=1)
        assert layers.asked() == (["peek"], [])

    def test_another_body(self, layers: Layers) -> None:
        """Another body takes one trip, during and after the work."""
        first = layers.call()
        first.open()
        layers.asked()
        assert layers.call(digest=b"other".ljust(32)).open() == Mismatch()
        first.settle()
        layers.asked()
        assert layers.call(digest=b"other".ljust(32)).open() == Mismatch()
        assert layers.asked() == (["peek"], [])

    def test_a_miss(self, layers: Layers) -> None:
        """A copy that the front has lost is put again."""
        layers.call().run()
        layers.front.copies.clear()
        layers.asked()
        assert isinstance(layers.call().run(), Replay)
        assert layers.asked() == (["peek", "put"], ["claim"])
        assert isinstance(layers.call().run(), Replay)
        assert layers.asked() == (["peek"], [])

    def test_a_failure(self, layers: Layers) -> None:
        """The marker goes with the claim, so the next attempt may begin at once."""
        layers.call().run(WorkResult.FAILED)
        assert layers.asked()[0] == ["peek", "put", "drop"]
        assert layers.call().run() == Execute(attempt=2)

    def test_with_a_local_front(self) -> None:
        """A local front holds no marker, and a replay takes no trip at all."""
        authority = RecordingStore(MemoryStore())
        store = LayeredStore(front=LocalCache(), authority=authority)
        for _ in range(3):
            Call(store=store, ticket=make_ticket()).run()
        assert authority.verbs == ["claim", "settle"]

    def test_async(self, layers: Layers) -> None:
        """An event loop takes the same trips, and sends no query itself."""

        async def run(times: int) -> None:
            for _ in range(times):
                operation = LeaseOperation(layers.store, make_ticket(), Listener())
                if isinstance(await threads.aopen(operation), Execute):
                    await threads.in_thread_of(
                        operation.store,
                        operation.settle,
                        Ending(WorkResult.KEPT, OUTCOME, succeeded=True),
                    )

        async_to_sync(run)(1)
        assert layers.asked() == (["peek", "put", "put"], ["claim", "settle"])
        async_to_sync(run)(1)
        assert layers.asked() == (["peek"], [])
        layers.front.copies.clear()
        async_to_sync(run)(1)
        assert layers.asked() == (["peek", "put"], ["claim"])


@pytest.mark.django_db(transaction=True)
class TestCommit:
    """The front receives nothing that may still be rolled back."""

    def test_never_before_it(self, layers: Layers) -> None:
        """The response is put when the transaction of the work is over."""
        call = layers.call()
        call.open()
        call.work()
        call.settle()
        assert layers.front.uncommitted == []
        copy = layers.copy(call)
        assert copy is not None
        assert (copy.status, copy.outcome) == (Status.COMPLETED, OUTCOME)

    def test_a_callback_that_fails(self, layers: Layers) -> None:
        """It fails after the COMMIT, so the response is put all the same."""

        def fail() -> None:
            raise ZeroDivisionError

        call = layers.call()
        call.open()
        transaction.on_commit(fail)
        with pytest.raises(ZeroDivisionError):
            call.settle()
        copy = layers.copy(call)
        assert copy is not None
        assert (copy.status, copy.outcome) == (Status.COMPLETED, OUTCOME)

    def test_in_a_callers_transaction(self, layers: Layers) -> None:
        """The caller's COMMIT counts; until then the claim is not visible in the front."""
        with transaction.atomic():
            call = layers.call()
            call.run()
            assert layers.asked()[0] == ["peek"]
        assert layers.asked()[0] == ["put"]
        assert layers.front.uncommitted == []

    def test_a_callers_rollback(self, layers: Layers) -> None:
        with suppress(ZeroDivisionError), transaction.atomic():
            call = layers.call()
            call.run()
            raise ZeroDivisionError
        assert layers.front.copies == {}
        assert layers.call().run() == Execute(attempt=1)

    def test_what_a_callers_transaction_reads(self, layers: Layers) -> None:
        """A transaction's snapshot may be old, so its reads fill no front."""
        layers.call().run()
        layers.front.copies.clear()
        with transaction.atomic():
            assert isinstance(layers.call().run(), Replay)
        assert layers.front.copies == {}

    def test_marked_for_rollback_late(self, layers: Layers) -> None:
        """A transaction that is marked right before its COMMIT puts nothing into the front, and
        its success is withheld.
        """
        commit = layers.authority.commit
        transactions: list[Guard] = []

        def doomed(guard: Guard, ticket: Ticket, settlement: Settlement) -> bool:
            transactions.append(guard)
            if len(transactions) == 1:
                transaction.set_rollback(True)
            return commit(guard, ticket, settlement)

        layers.authority.commit = doomed  # type: ignore[method-assign]
        call = layers.call()
        with pytest.raises((TransactionLost, StoreUnavailable)):
            call.run()
        assert (len(transactions), effects()) == (2, 0)
        assert row(call.ticket).status == Status.FREE
        statuses = {record.status for record, _, _ in layers.front.copies.values()}
        assert Status.COMPLETED not in statuses

    def test_a_lost_settle(self, layers: Layers) -> None:
        """An owner that was overtaken puts nothing into the front."""
        first, second = make_ticket(lease=1), make_ticket(lease=30)
        layers.store.claim(first)
        layers.age(2)
        layers.store.claim(second)
        layers.asked()
        late = LeaseOperation(layers.store, first, Listener())
        late.run = Execute(attempt=1)
        late.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
        assert layers.asked()[0] == []

    def test_an_atomic_takeover(self, layers: Layers) -> None:
        """Retention begins at the takeover, as at a claim, and no copy is kept for longer."""
        layers.call(ttl=100).run(WorkResult.FAILED)
        layers.age(60)
        call = layers.call(ttl=100)
        assert call.run() == Execute(attempt=2)
        copy = layers.copy(call)
        assert copy is not None
        assert abs(copy.expires_at - row(call.ticket).expires_at) < timedelta(seconds=1)
        assert copy.attempt == 2
        assert layers.front.lives[-1] == pytest.approx(100, abs=1)


@pytest.mark.django_db(transaction=True)
class TestLives:
    """No copy outlives its original."""

    def test_an_answer(self, layers: Layers) -> None:
        """A copy lives an hour, or until the response expires."""
        layers.call(key="day").run()
        assert layers.front.lives[-1] == 3600
        layers.call(key="minute", ttl=60).run()
        assert layers.front.lives[-1] == pytest.approx(60, abs=1)

    def test_an_answer_after_long_work(self, layers: Layers) -> None:
        """The claim has fixed the expiry."""
        call = layers.call(ttl=60)
        call.open()
        layers.stopwatch.now += 50
        call.settle()
        assert layers.front.lives[-1] == pytest.approx(10, abs=1)

    def test_an_answer_of_its_own_life(self, layers: Layers) -> None:
        call = layers.call()
        call.open()
        call.settle(ttl=5)
        assert layers.front.lives[-1] == pytest.approx(5, abs=1)

    def test_a_response_that_was_read(self, layers: Layers) -> None:
        """A miss late in a record's life makes a short copy."""
        layers.call(ttl=60).run()
        layers.age(50)
        layers.front.copies.clear()
        layers.call().run()
        assert layers.front.lives[-1] == pytest.approx(10, abs=1)

    def test_beyond_its_expiry(self, layers: Layers) -> None:
        """The work runs again, although the front was not notified."""
        layers.call(ttl=60).run()
        layers.age(60)
        assert layers.call().run() == Execute(attempt=1)
        assert effects() == 2

    def test_a_marker(self, layers: Layers) -> None:
        """A marker lives a second, whatever the lease; then the authority is asked."""
        layers.call(guarantee=Guarantee.LEASE, lease=30).open()
        assert layers.front.lives == [MARKER]
        layers.stopwatch.now += MARKER
        layers.asked()
        assert isinstance(layers.call(guarantee=Guarantee.LEASE, lease=30).open(), Busy)
        assert layers.asked() == (["peek"], ["claim"])

    def test_a_marker_of_a_shorter_lease(self, layers: Layers) -> None:
        layers.call(lease=0.25).open()
        assert layers.front.lives[-1] == pytest.approx(0.25, abs=0.1)

    def test_a_dead_worker(self, layers: Layers) -> None:
        """A dead worker's marker does not delay the next call beyond the claim's lease."""
        layers.store.claim(atomic_ticket(lease=1))
        layers.age(1)
        assert layers.call().run() == Execute(attempt=2, takeover=True)

    @pytest.mark.parametrize(
        ("setting", "kept"), [(0.25, 0.25), (timedelta(seconds=0.5), 0.5), (60, MARKER)]
    )
    def test_a_marker_and_the_setting(self, settings: Settings, setting: Any, kept: float) -> None:
        """CLAIM_LEASE also limits the marker on a route with a longer lease."""
        settings.CACHES = {
            "default": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": "redis://127.0.0.1:1/0",
            }
        }
        settings.IDEMPOTENCY = {"STORES": LAYERED, "CLAIM_LEASE": setting}
        store, stopwatch = stores["default"], Stopwatch()
        front = FarCache(stopwatch)
        assert isinstance(store, LayeredStore)
        store.front, store._clock = CircuitBreaker(front), stopwatch
        store.claim(make_ticket(guarantee=Guarantee.LEASE, lease=30))
        assert front.lives == [kept]

    def test_a_marker_of_the_default(self) -> None:
        """The default CLAIM_LEASE gives a marker of that length."""
        assert conf.claim_lease() == MARKER == conf.DEFAULTS["CLAIM_LEASE"]

    def test_our_own_marker(self, layers: Layers) -> None:
        """A repeated claim of the same call asks the authority."""
        call = layers.call()
        layers.store.claim(call.ticket)
        assert call.run() == Execute(attempt=1)

    def test_a_copy_that_comes_late(self, layers: Layers) -> None:
        """A call delayed between reading and putting puts nothing: an operator may have
        intervened.
        """
        layers.call().run()
        layers.front.copies.clear()
        claim = layers.authority.claim

        def slowly(ticket: Any) -> Record:
            record = claim(ticket)
            layers.stopwatch.now += FRESH + 0.01
            return record

        layers.authority.claim = slowly  # type: ignore[method-assign]
        assert isinstance(layers.call().run(), Replay)
        assert layers.front.copies == {}
        layers.call(key="new").run()
        # And no marker.
        assert [record.status for record, *_ in layers.front.copies.values()] == [Status.COMPLETED]

    def test_no_memory_of_the_claim(self, layers: Layers) -> None:
        """Beyond this many at once, a response is put at its first replay."""
        call = layers.call()
        call.open()
        layers.store._under_way.clear()
        call.settle()
        assert layers.front.copies == {}
        layers.call().run()
        assert layers.copy(call) is not None

    def test_claims_that_run_nothing(self) -> None:
        """Claims that run nothing are never settled, so they take no room: another body, another
        scope.
        """
        store = LayeredStore(front=LocalCache(), authority=MemoryStore())
        crashed = make_ticket(lease=0)
        store.claim(crashed)
        store._under_way.clear()
        for met in (
            make_ticket(body=b"other"),
            make_ticket(scope="user:2")._replace(id=crashed.id),
        ):
            assert isinstance(rules.read(store.claim(met), met), Mismatch)
        assert store._under_way == {}

    def test_claims_that_are_passed_on(self) -> None:
        """They end under another token, and the memory of the first one is dropped."""
        store, other = LayeredStore(front=LocalCache(), authority=MemoryStore()), make_ticket()
        record = store.claim(make_ticket())
        assert store.settle(other, conclusions.handover(record, other))
        assert store._under_way == {}

    def test_claims_that_never_end(self) -> None:
        """Claims that never end take only a bounded room."""
        store = LayeredStore(front=LocalCache(), authority=MemoryStore())
        for number in range(UNDER_WAY + 5):
            store.claim(make_ticket(key=str(number)))
        assert len(store._under_way) == UNDER_WAY


@pytest.mark.django_db(transaction=True)
class TestOperators:
    @pytest.mark.parametrize("verb", ["release", "expire", "erase"])
    def test_an_intervention(self, layers: Layers, verb: str) -> None:
        """The copy is dropped, and the next request runs."""
        call = layers.call()
        call.run()
        assert (
            layers.store.change(call.ticket.id, CHANGES[verb], audit=nothing) is Intervention.DONE
        )
        assert layers.copy(call) is None
        assert isinstance(layers.call().run(), Execute)
        assert effects() == 2

    def test_doing_it_again(self, layers: Layers) -> None:
        """A second release drops a copy that was put after the first."""
        call = layers.call()
        call.run()
        copy = layers.front.copies[call.ticket.id]
        layers.store.change(call.ticket.id, released, audit=nothing)
        layers.front.copies[call.ticket.id] = copy
        assert isinstance(layers.call().run(), Replay)
        assert layers.store.change(call.ticket.id, released, audit=nothing) is Intervention.ALREADY
        assert isinstance(layers.call().run(), Execute)

    def test_in_a_transaction(self, layers: Layers) -> None:
        """Until its COMMIT other calls put the response again, so it is dropped at COMMIT, too."""
        call = layers.call()
        call.run()
        copy = layers.front.copies[call.ticket.id]
        with transaction.atomic():
            layers.store.change(call.ticket.id, released, audit=nothing)
            assert layers.copy(call) is None
            layers.front.copies[call.ticket.id] = copy
        assert layers.copy(call) is None

    def test_a_front_that_is_down(self, layers: Layers, caplog: pytest.LogCaptureFixture) -> None:
        """The record is released, and an error describes what the front may still return."""
        call = layers.call()
        call.run()
        layers.front.error = StoreUnavailable()
        assert layers.store.change(call.ticket.id, released, audit=nothing) is Intervention.DONE
        (said,) = [record.message for record in caplog.records if record.levelno == logging.ERROR]
        assert "may replay for up to 3600 s what was changed by hand. Repeat the change" in said

    def test_another_process(self) -> None:
        """Another process's local cache misses it, for at most 60 seconds."""
        stopwatch = Stopwatch()
        ours = LayeredStore(
            front=LocalCache(clock=stopwatch), authority=ORMStore(), clock=stopwatch
        )
        theirs = LayeredStore(front=LocalCache(), authority=ORMStore())
        call = Call(store=ours)
        call.run()
        assert theirs.change(call.ticket.id, released, audit=nothing) is Intervention.DONE
        stopwatch.now += 59.9
        assert isinstance(Call(store=ours).run(), Replay)
        stopwatch.now += 0.1
        assert isinstance(Call(store=ours).run(), Execute)

    def test_a_purge(self, layers: Layers) -> None:
        """A purge is the authority's work."""
        layers.call(ttl=60).run()
        layers.age(100)
        assert layers.store.purge(limit=10).count == 1


@pytest.mark.django_db(transaction=True)
class TestFailingFronts:
    @pytest.mark.parametrize("error", [StoreUnavailable(), RuntimeError("a driver's own")])
    def test_down(self, layers: Layers, error: Exception) -> None:
        """Every call gets its response, runs once, and tried one trip."""
        layers.front.error = error
        assert isinstance(layers.call().run(), Execute)
        assert isinstance(layers.call().run(), Replay)
        assert layers.front.asked() == ["peek"]
        assert effects() == 1

    @pytest.mark.parametrize("trips", range(4))
    def test_down_after_so_many_trips(self, layers: Layers, trips: int) -> None:
        """Wherever the front fails, the work runs once and is replayed."""
        trip, left = layers.front._trip, [trips]

        def count(verb: str) -> None:
            trip(verb)
            left[0] -= 1
            if left[0] < 0:
                raise StoreUnavailable

        layers.front._trip = count  # type: ignore[method-assign]
        layers.call().run()
        layers.age(MARKER)  # a marker that could not be replaced
        assert isinstance(layers.call().run(), Replay)
        assert effects() == 1

    def test_an_authority_that_is_down(self, layers: Layers) -> None:
        """Replays continue; new work does not run."""
        layers.call().run()

        def gone(ticket: Any) -> Record:
            raise StoreUnavailable

        layers.authority.claim = gone  # type: ignore[method-assign]
        assert isinstance(layers.call().run(), Replay)
        with pytest.raises(StoreUnavailable):
            layers.call(key="new").open()

    def test_another_scope_in_the_front(self, layers: Layers) -> None:
        """A copy of another scope's response is never returned."""
        call = layers.call()
        call.run()
        theirs = layers.call(scope="user:2", id=call.ticket.id)
        layers.asked()
        assert theirs.open() == Mismatch()
        assert layers.asked()[1] == ["claim"]  # the verdict came from the authority


def test_many_threads() -> None:
    """Of many threads on one key, one runs."""
    store = LayeredStore(front=LocalCache(size=2), authority=MemoryStore())

    def call(number: int) -> str:
        operation = LeaseOperation(store, make_ticket(key=f"key-{number % 5}"), Listener())
        verdict = operation.open()
        if isinstance(verdict, Execute):
            operation.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
        return type(verdict).__name__

    with ThreadPoolExecutor(16) as pool:
        verdicts = list(pool.map(call, range(400)))
    assert verdicts.count("Execute") == 5
    assert set(verdicts) <= {"Execute", "Replay", "Busy"}


@pytest.mark.django_db(transaction=True)
def test_another_process_claims(layers: Layers) -> None:
    """A copy put by one store is served by another one over the same front and table."""
    layers.call().run()
    other = LayeredStore(front=layers.front, authority=ORMStore(), clock=layers.stopwatch)
    assert isinstance(elsewhere(lambda: Call(store=other).open()), Replay)


# -------------------------------------------------------------------------------------------- Redis


@pytest.fixture
def redis(settings: Settings) -> Iterator[RedisStore]:
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
        "redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS},
    }
    store = RedisStore(cache="redis", prefix=f"test-{uuid4()}", timeout=5)
    yield store
    with Redis.from_url(REDIS) as server:
        for name in server.scan_iter(f"*{store.prefix}:*"):
            server.delete(name)
    store.close()


@needs_redis
@committed
class TestOverORMBehindRedis(Layered, StoreContract):
    examples = 10

    @pytest.fixture
    def store(self, redis: RedisStore) -> LayeredStore:
        return LayeredStore(front=redis, authority=ORMStore(), seconds=1e6, clock=Stopwatch())

    def elapse(self, store: Any, seconds: float) -> None:
        super().elapse(store, seconds)
        elapse(seconds)
        front = store.front._front
        with Redis.from_url(REDIS) as server:
            for name in server.scan_iter(f"*{front.prefix}:*", count=1000):
                left, value = server.pttl(name) - round(seconds * 1000), server.get(name)
                if left > 0 and isinstance(value, bytes):
                    server.set(name, shift(value, seconds), px=left)
                else:
                    server.delete(name)
        # Moved records do not fit a stopwatch: its view of running records would differ from the
        # table's.
        store._under_way.clear()

    def vanish(self, store: Any, ticket: Ticket) -> None:
        IdempotencyRecord.objects.filter(pk=ticket.id).delete()
        super().vanish(store, ticket)


@needs_redis
@pytest.mark.django_db(transaction=True)
class TestBehindRedis:
    def test_another_process(self, redis: RedisStore, django_assert_num_queries: Any) -> None:
        """A replay in a process that has never seen the key costs no query; a release takes effect
        at once.
        """
        ours, theirs = (LayeredStore(front=redis, authority=ORMStore()) for _ in range(2))
        call = Call(store=ours)
        call.run()
        with django_assert_num_queries(0):
            assert Call(store=theirs).run() == Replay(outcome=OUTCOME, attempt=1)
        assert theirs.change(call.ticket.id, released, audit=nothing) is Intervention.DONE
        assert isinstance(Call(store=ours).run(), Execute)

    def test_erased(self, redis: RedisStore) -> None:
        """An erased record leaves Redis, a local cache and the table, and both fronts if its row
        was deleted.
        """
        for deleted in (False, True):
            store = LayeredStore(
                front=LocalCache(), authority=LayeredStore(front=redis, authority=ORMStore())
            )
            call = Call(store=store)
            call.run()
            assert isinstance(Call(store=store).run(), Replay)
            if deleted:
                IdempotencyRecord.objects.all().delete()
                assert isinstance(Call(store=store).run(), Replay)
            ended = store.change(call.ticket.id, erased, audit=nothing)
            assert ended is (Intervention.GONE if deleted else Intervention.DONE)
            assert redis.peek(call.ticket.id) is None
            assert not IdempotencyRecord.objects.exclude(response_status=None).exists()
            again = Call(store=store)
            assert again.run() == Execute(attempt=1)
            assert store.change(call.ticket.id, erased, audit=nothing) is Intervention.DONE

    def test_forged(self, redis: RedisStore) -> None:
        """A copy that we have not signed counts as absent."""
        store = LayeredStore(front=redis, authority=ORMStore())
        call = Call(store=store)
        call.run()
        with Redis.from_url(REDIS) as server:
            (name,) = server.scan_iter(f"*{redis.prefix}:*")
            value = server.get(name)
            assert isinstance(value, bytes)
            server.set(name, value.replace(b"{}", b"[]"))
        assert Call(store=store).run() == Replay(outcome=OUTCOME, attempt=1)

    def test_async(self, redis: RedisStore) -> None:
        """Of tasks that wait in one event loop, one executes, and the others get its response."""
        store = LayeredStore(front=redis, authority=ORMStore())

        async def burst() -> list[str]:
            async def call() -> str:
                operation = LeaseOperation(store, make_ticket(), Listener())
                verdict = await threads.aopen(operation, wait=5)
                if isinstance(verdict, Execute):
                    await asyncio.sleep(0.1)
                    await threads.in_thread_of(
                        operation.store,
                        operation.settle,
                        Ending(WorkResult.KEPT, OUTCOME, succeeded=True),
                    )
                return type(verdict).__name__

            return sorted(await asyncio.gather(*(call() for _ in range(8))))

        assert async_to_sync(burst)() == ["Execute", *["Replay"] * 7]


# ------------------------------------------------------------------------------------- construction


@pytest.mark.parametrize(
    "wrong", [{"front": MemoryStore()}, {"authority": LocalCache()}, {"authority": None}]
)
def test_what_it_is_made_of(wrong: dict[str, Any]) -> None:
    """An invalid front or authority is refused at once."""
    with pytest.raises(TypeError, match="must be"):
        LayeredStore(**{"front": LocalCache(), "authority": MemoryStore(), **wrong})


def test_what_it_can() -> None:
    """It can do what its authority can."""
    over_orm = LayeredStore(front=LocalCache(), authority=ORMStore(using="other"))
    over_memory = LayeredStore(front=LocalCache(), authority=MemoryStore())
    assert (over_orm.supports_atomic, over_orm.using) == (True, "other")
    assert (over_memory.supports_atomic, over_memory.using) == (False, None)
