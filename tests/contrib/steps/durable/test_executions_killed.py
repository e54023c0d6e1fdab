"""Invocations of a durable execution in separate processes, killed at every line that touches the
store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from django_idempotency.testing.clock import elapse
from testproject.payments.models import Effect
from tests.messages.processes import Processes
from tests.stores.helpers import committed

pytestmark = [pytest.mark.either_server, pytest.mark.faults]

LEASE = 30


class Lambda(Processes):
    """Invokes an execution, and returns its output."""

    def invoke(self, name: str, end: str = "return") -> str:
        before = len(self.log)
        assert (
            self.start("-m", "tests.contrib.steps.durable.invocation", name, end).wait(30) == 0
        ), self.log
        return self.log[before:].strip()

    def kill(self, name: str, end: str, *hangs: str) -> None:
        """Kill an invocation where it hangs."""
        before = len(self.log)
        process = self.start("-m", "tests.contrib.steps.durable.invocation", name, end, *hangs)
        self.until(lambda: "hangs" in self.log[before:], f"{name} hangs in {hangs or end}")
        process.kill()
        process.wait(10)


@pytest.fixture
def host(db: None, tmp_path: Path) -> Iterator[Lambda]:
    host = Lambda(tmp_path, LOG_LEVEL="ERROR")
    yield host
    host.end()
    Effect.objects.all().delete()  # its table is not flushed


def attempts() -> list[int]:
    return [effect.attempt for effect in Effect.objects.order_by("pk")]


@committed
def test_killed_while_it_works(host: Lambda) -> None:
    """A kill after a resume is a crash: after the lease another takes over, and the hook is
    asked.
    """
    assert host.invoke("a", "sleep") == "sleeps"
    elapse(20 * LEASE)
    assert host.invoke("b") == "in progress"
    host.kill("a", "hang")
    assert host.invoke("a") == "in progress"
    elapse(LEASE)
    assert host.invoke("b") == "asked\ncharged"
    assert host.invoke("a") == "charged"
    assert attempts() == [1, 1, 2]


@committed
def test_killed_as_it_goes_to_sleep(host: Lambda) -> None:
    """A kill before the suspension is complete is a crash."""
    host.kill("a", "sleep", "settle", "1")
    assert host.invoke("b") == "in progress"
    assert host.invoke("a") == "in progress"
    elapse(LEASE)
    assert host.invoke("b") == "asked\ncharged"
    assert attempts() == [1, 2]


@committed
def test_killed_as_it_wakes(host: Lambda) -> None:
    """A kill before the resume is complete leaves the call suspended, and it can be called again at
    once.
    """
    host.invoke("a", "sleep")
    host.kill("a", "return", "settle", "1")
    elapse(LEASE)
    assert host.invoke("b") == "in progress"
    assert host.invoke("a") == "charged"
    assert attempts() == [1, 1]


@committed
def test_killed_after_it_has_resumed(host: Lambda) -> None:
    """A kill just after the resume is a crash, as the progress is unknown; a short lease counts,
    not the long one.
    """
    host.invoke("a", "sleep")
    host.kill("a", "return", "settle", "2")
    assert host.invoke("b") == "in progress"
    elapse(LEASE)
    assert host.invoke("b") == "asked\ncharged"
    assert attempts() == [1, 1, 2]
