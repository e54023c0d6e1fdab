"""uvicorn, and clients that hang up before, during and after the view, unaware of which thread or
task continues.
"""

from __future__ import annotations

import random
import time

import pytest
from django.utils import timezone

from django_idempotency.core.records import Status

from .clients import Customer, assert_busy, assert_first, assert_replay, new_key
from .database import effects, latest, record, sessions
from .plans import Faults, until
from .servers import Server

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

#: server, entry point. Beneath the middleware a keyed sync request takes one hop to a thread;
#: alone, the entry points take one of Django's hops.
SYNC = [
    ("asgi", "/open/middleware/"),
    ("asgi", "/open/decorator/"),
    ("asgi", "/open/mixin/"),
    ("asgi_bare", "/open/decorator/"),
    ("asgi_bare", "/open/mixin/"),
]
#: Sync views with `lease`, each entry point once.
LEASED = [
    ("asgi", "/lease/decorator/"),
    ("asgi_bare", "/lease/decorator/"),
    ("asgi_lease", "/open/middleware/"),
]
ASYNC = [
    ("asgi", "/async/decorator/"),
    ("asgi_bare", "/async/decorator/"),
    ("asgi_lease", "/async/middleware/"),
]
#: The routes that get a crowd.
CROWDED = [
    ("asgi", "/open/middleware/"),
    ("asgi", "/open/mixin/"),
    ("asgi_bare", "/open/decorator/"),
    LEASED[1],
    *ASYNC,
]
#: Time for the news of a disconnect to arrive. A server that has not yet noticed gives nothing
#: away, either.
MOMENT = 0.1


@pytest.fixture
def server(request: pytest.FixtureRequest, at: str) -> Server:
    found = request.getfixturevalue(at)
    assert isinstance(found, Server)
    return found


@pytest.mark.either_server
@pytest.mark.parametrize(("at", "path"), SYNC + LEASED + ASYNC)
def test_it_works_at_all(server: Server, stranger: Customer, path: str) -> None:
    """The first response comes, then the replay."""
    key = new_key()
    first = stranger.post(server, path, key)
    assert_first(first)
    assert_replay(stranger.post(server, path, key), first)
    assert effects(key) == 1


@pytest.mark.parametrize(("at", "path"), SYNC)
@pytest.mark.parametrize(
    "point", ["claimed", "guarded", "viewing", "settled", "committing", "committed"]
)
def test_the_client_of_a_sync_view_hangs_up(
    server: Server, stranger: Customer, faults: Faults, point: str, path: str
) -> None:
    """The thread continues to COMMIT, holding the key all the time; a retry gets the replay."""
    fault = faults(new_key(), point, "pause")
    client = stranger.leave_soon(server, path, fault.key)
    fault.await_reached()
    client.leave()
    time.sleep(MOMENT)
    if point == "committed":
        assert_replay(stranger.post(server, path, fault.key))
    else:
        assert_busy(stranger.post(server, path, fault.key))
    fault.go_on()
    assert_replay(stranger.insist(server, path, fault.key)[0])
    assert (effects(fault.key), record(fault.key).attempt) == (1, 1)


@pytest.mark.either_server
@pytest.mark.parametrize(
    ("at", "path"), [pytest.param(*LEASED[0], marks=pytest.mark.sqlite), *LEASED[1:]]
)
def test_the_client_of_a_sync_view_in_lease_hangs_up(
    server: Server, stranger: Customer, faults: Faults, path: str
) -> None:
    """The thread continues and its lease is renewed: busy, even after the first lease is over; then
    the replay.
    """
    fault = faults(new_key(), "viewing", "pause")
    client = stranger.leave_soon(server, path, fault.key)
    fault.await_reached()
    client.leave()
    lease_until = record(fault.key).lease_until
    until(lambda: timezone.now() > lease_until, "the lease it had is over")
    assert_busy(stranger.post(server, path, fault.key))
    fault.go_on()
    assert_replay(stranger.insist(server, path, fault.key)[0])
    assert (effects(fault.key), record(fault.key).attempt) == (1, 1)


@pytest.mark.either_server
@pytest.mark.parametrize(
    ("at", "path"), [pytest.param(*ASYNC[0], marks=pytest.mark.sqlite), *ASYNC[1:]]
)
def test_the_client_of_an_async_view_hangs_up(
    server: Server, stranger: Customer, faults: Faults, path: str
) -> None:
    """The coroutine is cancelled, but its work may continue: busy until the lease ends, even if it
    has long ended.
    """
    fault = faults(new_key(), "viewing", "pause")
    client = stranger.leave_soon(server, path, fault.key)
    fault.await_reached()
    client.leave()
    time.sleep(MOMENT)
    lease_until = record(fault.key).lease_until
    insisting = stranger.begin_insisting(server, path, fault.key)
    time.sleep(MOMENT)
    fault.go_on()
    answer, _ = insisting.result()
    assert_first(answer)
    assert answer.json()["attempt"] == 2
    assert latest(fault.key).created > lease_until
    assert_replay(stranger.post(server, path, fault.key), answer)


@pytest.mark.either_server
@pytest.mark.parametrize(("at", "path"), ASYNC)
def test_the_client_of_an_async_view_hangs_up_before_it(
    server: Server, stranger: Customer, faults: Faults, path: str
) -> None:
    """Nothing has run: the key is free as soon as the claim is complete."""
    fault = faults(new_key(), "claimed", "pause")
    client = stranger.leave_soon(server, path, fault.key)
    fault.await_reached()
    client.leave()
    time.sleep(MOMENT)
    assert record(fault.key).status == Status.RUNNING.value
    fault.go_on()
    until(lambda: record(fault.key).status == Status.FREE.value, "the key is free")
    answer = stranger.post(server, path, fault.key)
    assert_first(answer)
    assert (effects(fault.key), answer.json()["attempt"]) == (1, 2)


@pytest.mark.either_server
@pytest.mark.parametrize(("at", "path"), LEASED + ASYNC)
def test_the_client_of_a_view_in_lease_hangs_up_after_it(
    server: Server, stranger: Customer, faults: Faults, path: str
) -> None:
    """The response is still settled: a replay, even before the server notices the disconnect."""
    fault = faults(new_key(), "settled", "pause")
    client = stranger.leave_soon(server, path, fault.key)
    fault.await_reached()
    client.leave()
    time.sleep(MOMENT)
    assert_replay(stranger.post(server, path, fault.key))
    fault.go_on()
    assert_replay(stranger.post(server, path, fault.key))
    assert effects(fault.key) == 1


@pytest.mark.usefixtures("crowd")
@pytest.mark.parametrize(("at", "path"), CROWDED)
def test_a_crowd_does_not_deadlock(server: Server, stranger: Customer, path: str) -> None:
    """20 keys at once, each twice, have 20 effects, or with `lease` one per attempt if the machine
    outlasts a lease.
    """
    keys = [new_key() for _ in range(20)]
    answers = stranger.burst(server, path, keys + keys)
    for answer in answers:
        if answer.status_code != 201:
            assert_busy(answer)
    for key in keys:
        assert_replay(stranger.insist(server, path, key)[0])
        assert effects(key) == (1 if path.startswith("/open/") else record(key).attempt)


@pytest.mark.usefixtures("crowd")
@pytest.mark.parametrize(("at", "path"), CROWDED)
def test_a_crowd_of_which_half_hangs_up(server: Server, stranger: Customer, path: str) -> None:
    """The others are served, whenever the half leaves.

    Each key ends with one record and one effect or, with `lease`, at most one effect per attempt.
    No database session is left.
    """
    assert_first(stranger.post(server, path, new_key()))
    before = sessions()
    staying = [stranger.begin(server, path, new_key()) for _ in range(20)]
    left: list[str] = []
    for _ in range(20):
        left.append(new_key())
        client = stranger.leave_soon(server, path, left[-1])
        time.sleep(random.uniform(0, 0.03))  # at any moment of some 30 ms
        client.leave()
    for future in staying:
        assert_first(future.result())
    insisting = [stranger.begin_insisting(server, path, key) for key in left]
    for key, insisted in zip(left, insisting, strict=True):
        assert insisted.result()[0].status_code == 201
        assert 1 <= effects(key) <= (1 if path.startswith("/open/") else record(key).attempt)
    until(lambda: sessions() <= before, "the server's database sessions have ended")
