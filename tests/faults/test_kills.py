"""`kill -9` of the worker, at every point of a request's path."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord

from .clients import Customer, assert_first, assert_replay, assert_unanswered, new_key
from .database import SLEEP, charges, effects, record, sleeping
from .plans import Faults, news, until
from .servers import Server, gunicorn

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

#: CLAIM_LEASE, and time for a busy machine to notice and respond. LEASE is longer than any test
#: waits.
SOON = 1 + 10
PATHS = ("/api/charges/", "/plain/charges/", "/middleware/charges/")
BEFORE_COMMIT = ("claimed", "guarded", "writing", "written", "settled", "committing")
#: On each server: every point of one path, and one point of the path through the middleware.
ON_EACH = {*product(BEFORE_COMMIT, PATHS[:1]), ("written", PATHS[2])}


@pytest.fixture(scope="module")
def atomic_requests(
    faults_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Return gunicorn with ATOMIC_REQUESTS."""
    with gunicorn(tmp_path_factory.mktemp("atomic_requests"), ATOMIC_REQUESTS="1") as server:
        yield server


@pytest.mark.parametrize(
    ("point", "path"),
    [
        pytest.param(
            point, path, marks=() if (point, path) in ON_EACH else pytest.mark.either_server
        )
        for point in BEFORE_COMMIT
        for path in PATHS
    ],
)
def test_killed_before_commit(
    fleet: Server, customer: Customer, faults: Faults, point: str, path: str
) -> None:
    """The request counts as never made: the next retry runs, soon after CLAIM_LEASE, as attempt
    2.
    """
    fault = faults(new_key(), point, "kill")
    first = customer.begin(fleet, path, fault.key)
    fault.await_reached()
    answer, seconds = customer.insist(fleet, path, fault.key)
    assert_unanswered(first)
    assert_first(answer)
    assert seconds < SOON
    assert (effects(fault.key), charges(), record(fault.key).attempt) == (1, 1, 2)
    assert_replay(customer.post(fleet, path, fault.key), answer)


@pytest.mark.parametrize("point", ["written", "settled", "committing"])
def test_killed_under_atomic_requests(
    atomic_requests: Server, customer: Customer, faults: Faults, point: str
) -> None:
    """The claim is rolled back with the request: the retry is attempt 1, whatever the entry point."""
    atomic_requests.await_ready()
    for path in ("/api/charges/", "/middleware/charges/"):
        fault = faults(new_key(), point, "kill")
        first = customer.begin(atomic_requests, path, fault.key)
        fault.await_reached()
        assert effects(fault.key) == 0
        answer, seconds = customer.insist(atomic_requests, path, fault.key)
        assert_unanswered(first)
        assert_first(answer)
        assert seconds < SOON
        assert (effects(fault.key), record(fault.key).attempt) == (1, 1)
        atomic_requests.await_ready()


@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="SQLite's statements end with their process"
)
def test_killed_in_a_slow_statement(fleet: Server, stranger: Customer, faults: Faults) -> None:
    """The database may continue it, and holds the record meanwhile: the next retry runs after its
    end, not before.
    """
    fault = faults(new_key(), "viewing", "pause")
    first = stranger.begin(fleet, "/open/slow/", fault.key)
    fault.await_reached().go_on()
    until(sleeping, "the statement is under way")
    os.kill(fault.pid, signal.SIGKILL)
    answer, seconds = stranger.insist(fleet, "/open/slow/", fault.key)
    assert not sleeping()
    assert_unanswered(first)
    assert_first(answer)
    assert seconds < SOON + SLEEP
    assert (effects(fault.key), record(fault.key).attempt) == (1, 2)


def test_killed_in_a_new_life(fleet: Server, stranger: Customer, faults: Faults) -> None:
    """It was written before its work: the next owner knows of it, and sends the provider the same
    key.
    """
    key = new_key()
    assert_first(stranger.post(fleet, "/open/elsewhere/", key))
    IdempotencyRecord.objects.filter(key=key).update(expires_at=timezone.now() - timedelta(days=1))
    stranger.history.forget(key)
    fault = faults(key, "viewing", "kill")
    first = stranger.begin(fleet, "/open/elsewhere/", key)
    fault.await_reached()
    assert_unanswered(first)
    answer, _ = stranger.insist(fleet, "/open/elsewhere/", key)
    assert_first(answer)
    earlier, killed, retried = news(key, "provider").read_text().split()
    assert killed == retried
    assert killed != earlier
    assert (effects(key), record(key).attempt) == (2, 2)


@pytest.mark.parametrize("path", [pytest.param(PATHS[0], marks=pytest.mark.sqlite), *PATHS[1:]])
def test_killed_after_commit(fleet: Server, customer: Customer, faults: Faults, path: str) -> None:
    """The client got no response; its retry gets it, and nothing runs again."""
    fault = faults(new_key(), "committed", "kill")
    first = customer.begin(fleet, path, fault.key)
    fault.await_reached()
    assert_replay(customer.post(fleet, path, fault.key))
    assert_unanswered(first)
    assert (effects(fault.key), charges(), record(fault.key).attempt) == (1, 1, 1)


@pytest.mark.parametrize("point", ["settled", "committing", "committed"])
def test_killed_in_the_release(
    fleet: Server, customer: Customer, faults: Faults, point: str
) -> None:
    """The view has failed and is rolled back, its key not yet free: the next retry runs as soon."""
    fault = faults(new_key(), point, "kill")
    first = customer.begin(fleet, "/api/charges/", fault.key, card="tok_down")
    fault.await_reached()
    assert_unanswered(first)
    assert (
        record(fault.key).status == (Status.FREE if point == "committed" else Status.RUNNING).value
    )
    answer, seconds = customer.insist(fleet, "/api/charges/", fault.key, card="tok_down")
    assert answer.status_code == 500
    assert seconds < SOON
    assert (effects(fault.key), record(fault.key).status, record(fault.key).attempt) == (
        0,
        Status.FREE.value,
        2,
    )


@pytest.mark.parametrize(
    "point", ["claimed", pytest.param("written", marks=pytest.mark.sqlite), "settled", "committing"]
)
def test_a_crowd_retries_after_a_kill(
    fleet: Server, customer: Customer, faults: Faults, point: str
) -> None:
    """Of 30 retries at once for a dead worker's key one runs, and none fails."""
    fault = faults(new_key(), point, "kill")
    first = customer.begin(fleet, "/api/charges/", fault.key)
    fault.await_reached()
    crowd = [customer.begin_insisting(fleet, "/api/charges/", fault.key) for _ in range(30)]
    answers = [future.result()[0] for future in crowd]
    assert_unanswered(first)
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert (effects(fault.key), charges()) == (1, 1)
