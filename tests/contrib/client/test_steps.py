"""Calls inside a real step: the step's key reaches the provider, on every attempt, and an undo has
its own.
"""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from django_idempotency import idempotent_function
from django_idempotency.contrib.client.models import OutgoingCall
from django_idempotency.errors import ConfigurationError
from django_idempotency.functions import current_operation

from ...functions.helpers import LEASES, Clock
from ..steps.work import Crash
from .callers import client
from .provider import LOST, Failure, Provider

pytestmark = pytest.mark.django_db(transaction=True)

URL: list[str] = []
DIES: list[bool] = []


def send(path: str) -> str:
    """Make one call, without naming it."""
    with client() as made:
        return str(made.post(f"{URL[0]}/{path}", json={"amount": 5}).status_code)


def charge(*, idempotency_key: str) -> str:
    """Charge, and die before anyone knows."""
    status = send("charge")
    if DIES and DIES.pop():
        raise Crash
    return status


def refund(status: str, *, idempotency_key: str) -> None:
    """Undo charge()."""
    send("refund")


@idempotent_function(key="card", key_prefix="client-steps")
def book(card: str, gives_up: bool = False) -> Any:
    """One step that calls, and perhaps its undo."""
    run = current_operation()
    assert run is not None
    paid = run.step("charge", charge, undo=refund)
    return run.undo_steps() if gives_up else paid


@pytest.fixture
def clock(provider: Provider, settings: Settings) -> Clock:
    from django_idempotency.runtime.registry import stores

    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, **LEASES}
    URL[:] = [provider.url]
    DIES.clear()
    store: Any = stores["default"]
    store._clock = clock = Clock()
    return clock


def test_a_takeover_repeats_the_call(clock: Clock, provider: Provider) -> None:
    """The attempt after a crash makes the same call: the ledger has its response, and the provider
    is not asked again.
    """
    DIES.append(True)
    with pytest.raises(Crash):
        book("visa")
    clock.go(31)
    assert book("visa") == "200"
    assert (len(provider.keys), len(provider.effects)) == (1, 1)
    assert OutgoingCall.objects.get().key == provider.keys[0]


def test_a_lost_response(clock: Clock, provider: Provider) -> None:
    """A call whose response is lost is sent again inside the step, with its key."""
    provider.plan.append(LOST)
    assert book("visa") == "200"
    assert len(provider.keys) == 2
    assert set(provider.effects.values()) == {1}


def lookup(call: Any) -> Any:
    return call.found({}) if call.key in RESPONSES else call.run()


RESPONSES: dict[str, bytes] = {}


@pytest.mark.parametrize("works", [True, False])
def test_a_takeover_looks_it_up(
    clock: Clock,
    provider: Provider,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    works: bool,
) -> None:
    """An operation that begins again asks before it sends: what is found is the step's, and not
    sent.
    """
    monkeypatch.setattr(f"{__name__}.RESPONSES", provider.responses)
    settings.IDEMPOTENCY["PROVIDERS"]["fake"]["LOOKUP"] = f"{__name__}.lookup"
    provider.plan = [LOST if works else Failure(status=503)] * 4
    monkeypatch.setattr("django_idempotency.contrib.client.ledger.Ledger.end", lambda *_: dies())
    with pytest.raises(Crash):
        book("visa")
    monkeypatch.undo()
    monkeypatch.setattr(f"{__name__}.RESPONSES", provider.responses)
    sent = len(provider.seen)
    provider.plan.clear()
    clock.go(31)
    assert book("visa") == "200"
    assert len(provider.seen) - sent == (0 if works else 1)
    assert (len(set(provider.keys)), list(provider.effects.values())) == (1, [1])


def dies() -> None:
    raise Crash


def test_the_undo_has_a_key_of_its_own(clock: Clock, provider: Provider) -> None:
    """Charge and refund are two calls with two names and two keys."""
    assert book("visa", gives_up=True) is True
    assert len(set(provider.keys)) == 2
    assert len(set(OutgoingCall.objects.values_list("name", flat=True))) == 2


def test_a_step_that_writes_here_may_not_call(clock: Clock, provider: Provider) -> None:
    """Its call could not be written down before it is sent: that says so, and nothing is sent."""

    @idempotent_function(key="card", key_prefix="client-steps-here")
    def wrong(card: str) -> Any:
        run = current_operation()
        assert run is not None
        return run.step("charge", send, "charge")

    with pytest.raises(ConfigurationError, match="transaction"):
        wrong("visa")
    assert provider.keys == []
