"""Invocations of a durable execution in processes of their own, killed at every line that touches the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from django_idempotency.testing.clock import elapse
from testproject.payments.models import Effect
from tests.messages.processes import Processes
from tests.stores.acting import committed

LEASE = 30


class Lambda(Processes):
    """Invokes an execution, and says what the invocation said."""

    def invoke(self, name: str, end: str = "return") -> str:
        before = len(self.log)
        assert self.start("-m", "tests.functions.invocation", name, end).wait(30) == 0, self.log
        return self.log[before:].strip()

    def kill(self, name: str, end: str, *hangs: str) -> None:
        """Kill an invocation where it hangs."""
        before = len(self.log)
        process = self.start("-m", "tests.functions.invocation", name, end, *hangs)
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
    """Resumed, and killed: that was no sleep. After the lease another takes over, and is asked."""
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
@pytest.mark.parametrize("verb", ["settle", "renew"])
def test_killed_as_it_goes_to_sleep(host: Lambda, verb: str) -> None:
    """Before the token changes, it is a crash; before the long lease, it may be resumed until the short one ends."""
    host.kill("a", "sleep", verb, "1")
    assert host.invoke("b") == "in progress"
    if verb == "renew":
        assert host.invoke("a") == "charged"
        assert attempts() == [1, 1]
    else:
        assert host.invoke("a") == "in progress"
        elapse(LEASE)
        assert host.invoke("b") == "asked\ncharged"
        assert attempts() == [1, 2]


@committed
@pytest.mark.parametrize("verb", ["renew", "settle"])
def test_killed_as_it_wakes(host: Lambda, verb: str) -> None:
    """Until the token changes it is asleep, and goes on."""
    host.invoke("a", "sleep")
    host.kill("a", "return", verb, "1")
    assert host.invoke("b") == "in progress"
    assert host.invoke("a") == "charged"
    assert attempts() == [1, 1]


@committed
def test_killed_as_it_wakes_and_never_called_again(host: Lambda) -> None:
    """What was half awake is taken over after a short lease, not after the long one."""
    host.invoke("a", "sleep")
    host.kill("a", "return", "settle", "1")
    elapse(LEASE)
    assert host.invoke("b") == "asked\ncharged"
    assert attempts() == [1, 2]
