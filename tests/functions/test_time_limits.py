"""A real signal whose handler raises, as a worker's time limit does: at any instruction, also of
Django and the driver.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from django_idempotency import idempotent_function
from django_idempotency.engine.heartbeat import heartbeat
from django_idempotency.errors import InProgress
from django_idempotency.functions import current_operation
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect
from tests.stores.helpers import committed, elsewhere
from tests.support.interrupts import TimeLimit, limited

from .helpers import ORM

pytestmark = [
    committed,
    pytest.mark.slow,
    pytest.mark.skipif(
        "connection.vendor == 'mysql'",
        reason="PyMySQL does not know that a statement of the work was cut: the next call finds "
        "out",
    ),
]

SEED = 37
#: Seconds of calls, and how many at least: a busy machine makes fewer.
DURATION, FEWEST = 4.0, 50


@pytest.fixture(autouse=True)
def _records() -> Iterator[None]:
    with override_settings(IDEMPOTENCY={"STORES": {"default": ORM}}):
        yield
    Effect.objects.all().delete()


def work(job: int) -> int:
    handle = current_operation()
    assert handle is not None
    return int(
        Effect.objects.create(label="job", idempotency_key=str(job), attempt=handle.attempt).pk
    )


JOBS: dict[str, Any] = {
    guarantee: idempotent_function(
        key="job", key_prefix=f"limited-{guarantee}", guarantee=guarantee
    )(work)
    for guarantee in ("atomic", "lease")
}


def attempts(job: int) -> list[int]:
    return list(Effect.objects.filter(idempotency_key=str(job)).values_list("attempt", flat=True))


@pytest.mark.parametrize("guarantee", ["atomic", "lease"])
def test_a_time_limit_at_any_moment(guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """The next job of the same worker is committed each time, and a retry of the cut one ends with
    its effect, once.
    """
    caplog.set_level(logging.CRITICAL)
    run, moments = JOBS[guarantee], random.Random(SEED)
    usual = duration_of(partial(run, 0))
    ends, cut, jobs = time.monotonic() + DURATION, 0, 0
    while time.monotonic() < ends or jobs < FEWEST:
        jobs += 1
        try:
            with limited(moments.uniform(0.00001, usual)):
                run(jobs)
        except TimeLimit:
            cut += 1
        assert run(-jobs) > 0
        assert elsewhere(partial(attempts, -jobs)) == [1], (
            f"job {jobs}: the next one is not committed"
        )
        assert (current_operation(), heartbeat._watched, connection.execute_wrappers) == (
            None,
            {},
            [],
        )
    assert cut > jobs // 10
    IdempotencyRecord.objects.update(
        lease_until=IdempotencyRecord.objects.values_list("created_at")[:1]
    )
    for job in range(1, jobs + 1):
        made, left = run(job), attempts(job)
        assert Effect.objects.filter(pk=made, idempotency_key=str(job)).exists()
        assert len(left) == len(set(left)) <= (1 if guarantee == "atomic" else 2)


def duration_of(call: Callable[[], Any]) -> float:
    call()
    began = time.monotonic()
    for job in range(5):
        JOBS["atomic"](10**9 + job)
    return (time.monotonic() - began) / 5


class SlowResult:
    """Serializes for so long that the limit comes then."""

    dumps = 0

    def dump(self, value: Any) -> Any:
        self.dumps += 1
        if self.dumps == 1:
            time.sleep(30)
        return value

    def load(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize("guarantee", ["atomic", "lease"])
def test_a_time_limit_while_a_result_is_stored(guarantee: str) -> None:
    """The worker hears of it, and the result is not gone: a retry gets it, and the effect is there
    once.
    """

    @idempotent_function(key="job", key_prefix="slow", guarantee=guarantee, serializer=SlowResult())
    def slow(job: int) -> int:
        return work(job)

    with pytest.raises(TimeLimit), limited(0.2):
        slow(1)
    assert slow(1) == Effect.objects.get().pk


def test_what_a_serializer_raises_each_time_is_about_the_value() -> None:
    """It is no time limit: the call returns, and is never made again."""

    class OfTheProject(Exception):
        pass

    def dump(_value: Any) -> Any:
        raise OfTheProject

    @idempotent_function(key="job", key_prefix="unstorable", serializer=(dump, dump))
    def unstorable(job: int) -> int:
        return work(job)

    assert unstorable(1) == Effect.objects.get().pk
    with suppress(InProgress), pytest.raises(Exception, match="not stored"):
        unstorable(1)
