"""Servers that are asked to stop (a deployment) while they serve a request."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from .clients import Customer, assert_first, assert_replay, assert_unanswered, new_key
from .database import effects, latest, record
from .plans import Faults, until
from .servers import Server, gunicorn, uvicorn

pytestmark = [
    pytest.mark.either_server,
    pytest.mark.faults,
    pytest.mark.django_db(transaction=True),
]

PATHS = ("/open/middleware/", "/open/decorator/")


#: Each entry point at another point.
AT = pytest.mark.parametrize("at", [("viewing", PATHS[0]), ("settled", PATHS[1])], ids=str)


@AT
def test_uvicorn_gives_up_on_a_sync_view(
    fleet: Server, stranger: Customer, faults: Faults, tmp_path: Path, at: tuple[str, str]
) -> None:
    """Its tasks are cancelled, the thread runs until the process ends: effect and record are both
    kept, or neither.
    """
    point, path = at
    with uvicorn(tmp_path) as ending:
        fault = faults(new_key(), point, "pause")
        client = stranger.leave_soon(ending, path, fault.key)
        fault.await_reached()
        ending.process.send_signal(signal.SIGTERM)
        until(lambda: "graceful shutdown exceeded" in ending.log, "uvicorn has given up")
        fault.go_on()
        until(lambda: ending.process.poll() is not None, "uvicorn has ended")
        client.leave()
    answer, _ = stranger.insist(fleet, path, fault.key)
    assert effects(fault.key) == 1
    assert_replay(stranger.post(fleet, path, fault.key), answer)


def test_uvicorn_gives_up_on_an_async_view(
    asgi: Server, stranger: Customer, faults: Faults, tmp_path: Path
) -> None:
    """The key is held until its lease ends, because the progress of the work is unknown."""
    path = "/async/decorator/"
    with uvicorn(tmp_path) as ending:
        fault = faults(new_key(), "viewing", "pause")
        client = stranger.leave_soon(ending, path, fault.key)
        fault.await_reached()
        lease_until = record(fault.key).lease_until
        ending.process.send_signal(signal.SIGTERM)
        until(lambda: "graceful shutdown exceeded" in ending.log, "uvicorn has given up")
        client.leave()
    answer, _ = stranger.insist(asgi, path, fault.key)
    assert_first(answer)
    assert latest(fault.key).created > lease_until
    assert answer.json()["attempt"] == 2


@AT
def test_uvicorn_is_killed_in_a_sync_view(
    fleet: Server, stranger: Customer, faults: Faults, tmp_path: Path, at: tuple[str, str]
) -> None:
    """The request counts as never made."""
    point, path = at
    with uvicorn(tmp_path) as dying:
        fault = faults(new_key(), point, "kill")
        first = stranger.begin(dying, path, fault.key)
        fault.await_reached()
        assert_unanswered(first)
    answer, _ = stranger.insist(fleet, path, fault.key)
    assert_first(answer)
    assert (effects(fault.key), record(fault.key).attempt) == (1, 2)


def test_uvicorn_is_killed_in_an_async_view(
    asgi: Server, stranger: Customer, faults: Faults, tmp_path: Path
) -> None:
    """Its effect is kept; the key is held until the lease ends, and the next run is attempt 2."""
    path = "/async/decorator/"
    with uvicorn(tmp_path) as dying:
        fault = faults(new_key(), "viewing", "kill")
        first = stranger.begin(dying, path, fault.key)
        fault.await_reached()
        assert_unanswered(first)
    lease_until = record(fault.key).lease_until
    answer, _ = stranger.insist(asgi, path, fault.key)
    assert_first(answer)
    assert latest(fault.key).created > lease_until
    assert (effects(fault.key), answer.json()["attempt"]) == (2, 2)


@pytest.mark.parametrize("point", [pytest.param("viewing", marks=pytest.mark.sqlite), "settled"])
def test_gunicorn_waits_no_longer(
    fleet: Server, stranger: Customer, faults: Faults, tmp_path: Path, point: str
) -> None:
    """After its graceful timeout it kills its workers with their requests, and the retry runs."""
    with gunicorn(tmp_path) as ending:
        fault = faults(new_key(), point, "pause")
        client = stranger.leave_soon(ending, "/open/decorator/", fault.key)
        fault.await_reached()
        ending.process.send_signal(signal.SIGTERM)
        until(lambda: ending.process.poll() is not None, "gunicorn has ended")
        client.leave()
    answer, _ = stranger.insist(fleet, "/open/decorator/", fault.key)
    assert_first(answer)
    assert (effects(fault.key), record(fault.key).attempt) == (1, 2)
