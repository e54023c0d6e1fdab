"""Handlers that get the limit of their host as an argument."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_idempotency import deadline, idempotent_function
from django_idempotency.contrib.deadlines.hosts import limited_by
from django_idempotency.engine.deadlines import remaining
from django_idempotency.errors import DeadlinePassed

from ...functions.helpers import LEASES

pytestmark = pytest.mark.unit


class Invocation:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


@pytest.fixture(autouse=True)
def memory() -> Any:
    with override_settings(IDEMPOTENCY=LEASES):
        yield


@pytest.mark.parametrize("given", [Invocation(5), 5, timedelta(seconds=5)])
def test_its_limit(given: Any) -> None:
    """Inside the handler the host's deadline is that of its argument, given by position or by
    name.
    """

    @limited_by("context")
    def handler(event: Any, context: Any) -> float | None:
        return remaining()

    for left in (handler({}, given), handler(event={}, context=given)):
        assert left is not None
        assert 4 < left <= 5
    assert remaining() is None
    with deadline(1):
        assert (handler({}, given) or 9) <= 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_guarded_handler(is_async: bool) -> None:
    """It runs once, and never after its deadline; the records of its calls are at hand as without
    the decorator.
    """
    ran = list[Any]()

    if is_async:

        @limited_by("context")
        @idempotent_function(data_keyword_argument="event", key="order", key_prefix="ahandler")
        async def ahandler(event: Any, context: Any) -> float | None:
            ran.append(event)
            return remaining()

        handler, call = ahandler, async_to_sync(ahandler)
    else:

        @limited_by("context")
        @idempotent_function(
            data_keyword_argument="event", key="order", key_prefix="handler", guarantee="lease"
        )
        def shandler(event: Any, context: Any) -> float | None:
            ran.append(event)
            return remaining()

        handler = call = shandler  # type: ignore[assignment]

    with pytest.raises(DeadlinePassed):
        call({"order": 1}, Invocation(0))
    assert ran == []
    first = call({"order": 1}, Invocation(5))
    assert first is not None
    assert call({"order": 1}, Invocation(7)) == first
    assert ran == [{"order": 1}]
    known: Any = handler
    assert known.idempotency.lookup(event={"order": 1}).state == "completed"


def test_what_cannot_work() -> None:
    """A function without the argument is refused at decoration, and a call whose argument is no
    deadline before it runs.
    """
    with pytest.raises(ImproperlyConfigured, match=r"has no such argument\. It has event, ctx"):

        @limited_by("context")
        def handler(event: Any, ctx: Any) -> None: ...

    @limited_by("context")
    def other(event: Any, context: Any = None) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="takes seconds"):
        other({})
