"""`current_operation().lost`: work can ask whether another call may run by now; short calls are not
kept alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_idempotency import idempotent_function
from django_idempotency.engine import deadlines
from django_idempotency.engine.heartbeat import Heartbeat
from django_idempotency.errors import InProgress
from django_idempotency.functions import current_operation, deadline

from .helpers import Clock

pytestmark = pytest.mark.usefixtures("memory")


class Host:
    """A process and its clock, used by heartbeat and deadlines; the store has its own. No thread
    beats.
    """

    def __init__(self, store: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.store = store
        self.heartbeat = Heartbeat(clock=lambda: self.seconds)
        monkeypatch.setattr(self.heartbeat, "_start", lambda: None)
        monkeypatch.setattr("django_idempotency.engine.lease.heartbeat", self.heartbeat)
        monkeypatch.setattr(deadlines, "time", SimpleNamespace(monotonic=lambda: self.seconds))

    def run(self, until: float) -> None:
        """Let time pass, here and in the store, in steps of a second and a beat."""
        while self.seconds < until:
            self.seconds += 1
            self.store.go(1)
            self.heartbeat.beat(self.seconds)


@pytest.fixture
def host(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(clock, monkeypatch)


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Any:
    """Return a caller of a guarded function that does this work, with a lease of 30 seconds; sync
    in either mode.
    """
    sync = request.param == "sync"

    def calling(work: Callable[[], Any]) -> Callable[[], Any]:
        if sync:

            @idempotent_function(lease=30, key_prefix="charge")
            def charge(order: int) -> Any:
                return work()

            return lambda: charge(1)

        @idempotent_function(lease=30, key_prefix="charge")
        async def acharge(order: int) -> Any:
            await asyncio.sleep(0)
            return work()

        return lambda: async_to_sync(acharge)(1)

    return calling


def lost() -> bool:
    current = current_operation()
    assert current is not None
    return current.lost


@idempotent_function(lease=30, key_prefix="charge")
def overtake(order: int) -> str:
    """Act as another process: make the same call where nothing is known of the running one."""
    current = current_operation()
    assert current is not None
    return f"attempt {current.attempt}"


def elsewhere() -> str:
    return Context().run(overtake, 1)


def test_a_lease_that_another_has_taken(call: Any, host: Host) -> None:
    """The beat finds the loss although the lease still lasts by our own clock: the two clocks
    differ.
    """

    def work() -> list[bool]:
        seen = [lost()]
        host.store.go(31)
        assert elsewhere() == "attempt 2"
        seen.append(lost())  # the store has not been asked yet
        host.seconds += 10
        host.heartbeat.beat(host.seconds)
        return [*seen, lost()]

    assert call(work)() == [False, False, True]
    assert elsewhere() == "attempt 2"  # a late owner changes nothing


def told_around(host: Host, end: float) -> list[bool]:
    """Ask at once, just before so many seconds have passed, and then."""
    seen = [lost()]
    host.seconds += end - 0.1
    seen.append(lost())
    host.seconds += 0.1
    return [*seen, lost()]


def test_a_lease_that_has_ended_by_the_clock(call: Any, host: Host) -> None:
    """The beat itself may hang, so the answer does not depend on the last beat."""

    assert call(partial(told_around, host, 30))() == [False, False, True]


def test_a_lease_that_is_renewed(call: Any, host: Host) -> None:
    """A renewed lease is not lost, however long the work takes."""

    def work() -> bool:
        host.run(until=100)
        return lost()

    assert call(work)() is False


def test_a_deadline_that_has_passed(call: Any, host: Host) -> None:
    """The host has stopped waiting, and the lease has ended with it."""

    with deadline(5):
        assert call(partial(told_around, host, 5))() == [False, False, True]


def test_a_deadline_inside_the_call(call: Any, host: Host) -> None:
    """A deadline counts only inside its block: the work sees it there, and the lease continues
    afterwards.
    """

    def work() -> list[bool]:
        with deadline(5):
            host.seconds += 5
            seen = [lost()]
        return [*seen, lost()]

    assert call(work)() == [True, False]


@pytest.mark.parametrize("limited", [True, False])
def test_a_lease_under_a_deadline_is_not_renewed(call: Any, host: Host, limited: bool) -> None:
    """If the host stops at its limit, the next call takes over at once; without a limit it is busy
    all the time.
    """

    def work() -> str:
        host.run(until=29)
        with pytest.raises(InProgress):
            elsewhere()
        host.run(until=30)
        try:
            return elsewhere()
        except InProgress:
            return "busy"

    if limited:
        with deadline(30):
            assert call(work)() == "attempt 2"
    else:
        assert call(work)() == "busy"
