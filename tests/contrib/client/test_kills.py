"""`kill -9` at every line of a call: the next one under its name, or the command, finishes it, with
one effect.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from pytest_django import Settings

from django_idempotency.contrib.client.models import OutgoingCall

from .live_client import new_client
from .live_settings import PROVIDERS
from .provider import Failure, Provider, serving

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
either_server = pytest.mark.either_server
AMOUNT = {"amount": 2499}
PATIENCE = 60


@pytest.fixture
def provider(settings: Settings) -> Iterator[Provider]:
    settings.IDEMPOTENCY = {"PROVIDERS": PROVIDERS}
    with serving() as provider:
        yield provider


def start(point: str, provider: Provider, name: str = "order-17") -> subprocess.Popen[str]:
    """Start a process that makes a call."""
    database = str(connection.settings_dict["NAME"])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.contrib.client.dying", point, database, provider.url, name],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.contrib.client.live_settings"},
        stdout=subprocess.PIPE,
        text=True,
    )


def kill(point: str, provider: Provider) -> None:
    """Let a process make a call until it is killed at a point."""
    failure = None
    if point == "sent":
        failure = Failure(works=True, arrived=threading.Event(), proceed=threading.Event())
        provider.plan = [failure]
    process = start(point, provider)
    if failure is not None:
        assert failure.arrived is not None
        assert failure.proceed is not None
        assert failure.arrived.wait(PATIENCE)
        process.kill()
        failure.proceed.set()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -9


#: Point → the state of the row, and the requests that the provider has got.
POINTS = {
    "begun": (None, 0),
    "committed": ("open", 0),
    "sent": ("open", 1),
    "received": ("open", 1),
    "ended": ("succeeded", 1),
}
#: On each server: before the request, and while it is under way.
ON_EACH = ("committed", "sent")


@pytest.mark.parametrize(
    "point",
    [point if point in ON_EACH else pytest.param(point, marks=either_server) for point in POINTS],
)
def test_the_next_call_finishes_it(provider: Provider, point: str) -> None:
    """Whatever was done is not done twice; what was not is done."""
    kill(point, provider)
    row = OutgoingCall.objects.first()
    assert (row and row.state, len(provider.seen)) == POINTS[point]
    with new_client() as client:
        response = client.post(provider.url, json=AMOUNT, extensions={"idempotency": "order-17"})
    assert response.json()["id"] == "ch_1"
    assert list(provider.effects.values()) == [1]
    assert OutgoingCall.objects.get().state == "succeeded"
    assert len(set(provider.keys)) == 1
    if point == "ended":
        assert len(provider.seen) == 1


@either_server
@pytest.mark.parametrize("point", ["committed", "sent", "received"])
def test_the_command_finishes_it(provider: Provider, point: str) -> None:
    """Nobody calls again: a call that was committed is made, and the response is there for whoever
    asks.
    """
    kill(point, provider)
    out = StringIO()
    call_command("idempotency_resume", "calls", "--send", "--older-than", "0s", stdout=out)
    assert out.getvalue().strip() == "1 call finished."
    assert list(provider.effects.values()) == [1]
    sent = len(provider.seen)
    with new_client() as client:
        response = client.post(provider.url, json=AMOUNT, extensions={"idempotency": "order-17"})
    assert response.json()["id"] == "ch_1"
    assert len(provider.seen) == sent


def lookup(call: Any) -> Any:
    """Find what the provider has done. What is on its way is not found."""
    (provider,) = SEARCHED
    body = provider.responses.get(call.key)
    return call.run() if body is None else call.found(body)


SEARCHED: list[Provider] = []


@either_server
@pytest.mark.parametrize("by", ["caller", "command"])
@pytest.mark.parametrize(("point", "more"), [("committed", 1), ("received", 0), ("on its way", 1)])
def test_it_is_looked_up(
    provider: Provider, settings: Settings, point: str, more: int, by: str
) -> None:
    """What is found is not sent; what is not may be on its way, and its key makes the second
    request harmless.
    """
    SEARCHED[:] = [provider]
    settings.IDEMPOTENCY = {
        "PROVIDERS": {"fake": {**PROVIDERS["fake"], "LOOKUP": f"{__name__}.lookup"}}
    }
    slow = Failure(works=True, status=200, arrived=threading.Event(), proceed=threading.Event())
    if point == "on its way":
        provider.plan = [slow]
        process = start("never", provider)
        assert slow.arrived is not None
        assert slow.arrived.wait(PATIENCE)
        process.kill()
        process.communicate(timeout=PATIENCE)
    else:
        kill(point, provider)
    sent = len(provider.seen)
    if by == "command":
        call_command(
            "idempotency_resume", "calls", "--send", "--older-than", "0s", stdout=StringIO()
        )
    with new_client() as client:
        response = client.post(provider.url, json=AMOUNT, extensions={"idempotency": "order-17"})
    assert response.json()["id"] == "ch_1"
    assert len(provider.seen) - sent == more
    if point == "on its way":
        assert slow.proceed is not None
        slow.proceed.set()
        assert slow.done.wait(PATIENCE)
    assert list(provider.effects.values()) == [1]
    assert len(set(provider.keys)) == 1


@either_server
def test_several_workers(provider: Provider) -> None:
    """Each call is sent by one of them, and each is sent."""
    provider.plan = [Failure(status=503, headers={"x-should-retry": "false"})] * 12
    with new_client() as client:
        for number in range(12):
            client.post(provider.url, json=AMOUNT, extensions={"idempotency": f"order-{number}"})
    OutgoingCall.objects.update(state="open")
    provider.seen.clear()

    def work(_: int) -> str:
        out = StringIO()
        try:
            call_command(
                "idempotency_resume",
                "calls",
                "--send",
                "--older-than",
                "0s",
                stdout=out,
                stderr=StringIO(),
            )
        finally:
            connection.close()
        return out.getvalue()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    assert sorted(provider.effects.values()) == [1] * 12
    assert set(OutgoingCall.objects.values_list("state", flat=True)) == {"succeeded"}
    # --older-than 0s lets a second worker find what a first one is sending, and the row tells it to
    # leave that.
    assert len(provider.seen) <= 12 + 3


@either_server
def test_one_name_at_the_same_time(provider: Provider) -> None:
    """Several processes make the same call: one key, one effect, one response for all."""

    def call(_: int) -> Any:
        try:
            with new_client() as client:
                return client.post(
                    provider.url, json=AMOUNT, extensions={"idempotency": "order-17"}
                ).json()
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        responses = list(pool.map(call, range(6)))
    assert len({str(each) for each in responses}) == 1
    assert list(provider.effects.values()) == [1]
    assert len(set(provider.keys)) == 1
    assert OutgoingCall.objects.get().state == "succeeded"


@either_server
def test_processes_at_the_same_time(provider: Provider) -> None:
    """The same with processes, of which one is killed while the provider works."""
    kill("sent", provider)
    processes = [start("never", provider) for _ in range(3)]
    said = {process.communicate(timeout=PATIENCE)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(said) == 1
    assert list(provider.effects.values()) == [1]
