"""The layers before a store: a local cache that is bounded in every way, and a circuit breaker for
a failing front.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from django_idempotency.core.records import Outcome, Record, Status
from django_idempotency.errors import StoreRefused, StoreUnavailable
from django_idempotency.stores.layered import caches
from django_idempotency.stores.layered.caches import CircuitBreaker, LocalCache, RecordCache
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.tickets import make_ticket
from tests.support.fakes import record_of

from .cache_layers import FarCache, Stopwatch


def finished(key: str = "key-1", *, ttl: float = 86400, **fields: Any) -> Record:
    ticket = make_ticket(key=key, ttl=ttl)
    return record_of(
        ticket, **{"status": Status.COMPLETED, "outcome": Outcome(status=201, body=b"{}"), **fields}
    )


@pytest.fixture
def stopwatch() -> Stopwatch:
    return Stopwatch()


@pytest.fixture
def local(stopwatch: Stopwatch) -> LocalCache:
    return LocalCache(size=3, clock=stopwatch)


class TestLocalFront:
    def test_a_copy(self, local: LocalCache, stopwatch: Stopwatch) -> None:
        """The cache returns the record that was put, read now."""
        record = finished()
        local.put(record, seconds=60)
        stopwatch.now += 1.5
        assert local.peek(record.id) == record._replace(
            read_at=record.read_at + timedelta(seconds=1.5)
        )
        assert local.peek(UUID(int=1)) is None

    @pytest.mark.parametrize(
        ("seconds", "ttl", "life"),
        [
            (3600, 86400, 60),  # the cache's own limit
            (10, 86400, 10),  # the limit it was put with
            (3600, 30, 30),  # the record's expiry
        ],
    )
    def test_a_life(
        self, local: LocalCache, stopwatch: Stopwatch, seconds: float, ttl: float, life: float
    ) -> None:
        """The shortest of three limits ends a copy, and its room is free afterwards."""
        record = finished(ttl=ttl)
        local.put(record, seconds=seconds)
        stopwatch.now += life - 0.001
        assert local.peek(record.id) is not None
        stopwatch.now += 0.001
        assert local.peek(record.id) is None
        assert len(local) == 0

    @pytest.mark.parametrize("status", [Status.RUNNING, Status.FREE])
    def test_only_what_is_finished(self, local: LocalCache, status: Status) -> None:
        """A record that may still change is never held, and replaces an earlier copy."""
        record = finished()
        local.put(record, seconds=60)
        local.put(record._replace(status=status, outcome=None), seconds=60)
        assert local.peek(record.id) is None

    def test_the_least_recently_used_goes(self, local: LocalCache) -> None:
        """The cache is bounded, and a lookup counts as use."""
        records = [finished(key) for key in "abcd"]
        for record in records[:3]:
            local.put(record, seconds=60)
        assert local.peek(records[0].id) is not None
        local.put(records[3], seconds=60)
        assert [local.peek(record.id) is not None for record in records] == [
            True,
            False,
            True,
            True,
        ]
        assert len(local) == 3

    def test_a_drop(self, local: LocalCache) -> None:
        record = finished()
        local.put(record, seconds=60)
        local.drop(record.id)
        local.drop(record.id)
        assert local.peek(record.id) is None

    def test_no_size(self) -> None:
        with pytest.raises(ValueError, match="1 or more"):
            LocalCache(size=0)

    def test_threads(self) -> None:
        """Many threads put, look up and drop, and the bound holds."""
        local, records = LocalCache(size=5), [finished(str(number)) for number in range(20)]

        def hammer(seed: int) -> None:
            for number in range(300):
                record = records[(seed * 7 + number * 13) % len(records)]
                local.put(record, seconds=60)
                found = local.peek(record.id)
                assert found is None or found.key == record.key
                if number % 5 == 0:
                    local.drop(record.id)
                assert len(local) <= 6  # one is put before one goes

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(hammer, range(8)))
        assert len(local) <= 5


class TestSheltered:
    @pytest.fixture
    def far(self, stopwatch: Stopwatch) -> FarCache:
        return FarCache(stopwatch)

    @pytest.fixture
    def breaker(self, far: FarCache, stopwatch: Stopwatch) -> CircuitBreaker:
        return CircuitBreaker(far, clock=stopwatch)

    @pytest.mark.parametrize("error", [StoreUnavailable(), RuntimeError("a driver's own")])
    def test_no_failure_reaches_the_caller(
        self, breaker: CircuitBreaker, far: FarCache, error: Exception
    ) -> None:
        """A failing front counts as empty."""
        for ask in (
            lambda: breaker.peek(UUID(int=1)),
            lambda: breaker.put(finished(), seconds=1),
        ):
            far.error, breaker._failing = error, False
            assert ask() is None
        assert breaker.drop(UUID(int=1), insist=True) is False

    def test_a_log_filter_that_raises_is_contained(
        self, breaker: CircuitBreaker, far: FarCache
    ) -> None:
        def fail(*_: object) -> bool:
            raise KeyError("a filter's own fault")

        logger = logging.getLogger("django_idempotency")
        logger.addFilter(fail)
        try:
            far.error = OSError()
            assert breaker.peek(UUID(int=1)) is None
        finally:
            logger.removeFilter(fail)

    def test_it_is_left_alone(
        self, breaker: CircuitBreaker, far: FarCache, stopwatch: Stopwatch
    ) -> None:
        """After one failure there is no trip for a while, then one trial; if that succeeds, the
        front is used again.
        """
        record = finished()
        far.put(record, seconds=60)
        far.asked()
        far.error = StoreUnavailable()
        for _ in range(3):
            assert breaker.peek(record.id) is None
            assert breaker.drop(record.id) is False
        assert far.asked() == ["peek"]
        stopwatch.now += caches.PAUSE
        assert breaker.peek(record.id) is None
        assert breaker.peek(record.id) is None
        assert far.asked() == ["peek"]
        far.error = None
        assert breaker.peek(record.id) is None
        stopwatch.now += caches.PAUSE
        assert breaker.peek(record.id) is not None
        assert breaker.peek(record.id) is not None
        assert far.asked() == ["peek", "peek"]

    def test_an_error_for_an_answer(
        self, breaker: CircuitBreaker, far: FarCache, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A front that refuses one key has no copy of it, and is asked for the next key."""
        record = finished()
        far.put(record, seconds=60)
        far.error = StoreRefused()
        assert breaker.peek(record.id) is None
        assert breaker.drop(record.id) is False
        far.error = None
        assert breaker.peek(record.id) is not None
        assert [said.getMessage().partition(".")[0] for said in caplog.records] == [
            "A front returned an error"
        ]

    def test_only_one_tries(self, far: FarCache, stopwatch: Stopwatch) -> None:
        """While one call tests whether the front is back, the others do not wait for it."""
        breaker = CircuitBreaker(far, clock=stopwatch)
        far.error = StoreUnavailable()
        breaker.peek(UUID(int=1))
        stopwatch.now += caches.PAUSE
        assert [breaker._allows_call() for _ in range(3)] == [True, False, False]

    def test_an_operator_is_not_put_off(self, breaker: CircuitBreaker, far: FarCache) -> None:
        """A drop by hand is tried even when the front has just failed."""
        far.error = StoreUnavailable()
        breaker.peek(UUID(int=1))
        far.error = None
        assert breaker.drop(UUID(int=1), insist=True) is True
        assert far.asked() == ["peek", "drop"]

    def test_it_warns_now_and_then(
        self,
        breaker: CircuitBreaker,
        far: FarCache,
        stopwatch: Stopwatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """It does not warn once per request."""
        far.error = StoreUnavailable()
        for _ in range(25):
            breaker.peek(UUID(int=1))
            stopwatch.now += caches.PAUSE
        assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3  # in 125 s


def test_who_is_a_front() -> None:
    assert isinstance(LocalCache(), RecordCache)
    assert not isinstance(MemoryStore(), RecordCache)
