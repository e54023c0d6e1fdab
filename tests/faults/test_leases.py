"""`lease` between real processes: an owner that is gone, and one that returns too late."""

from __future__ import annotations

import time
from datetime import timedelta

import httpx
import pytest

from .clients import Customer, assert_busy, assert_first, assert_replay, assert_unanswered, new_key
from .database import effects, latest, record
from .plans import LEASE, POLL, Faults, lost, until
from .servers import Server

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

PATH = "/lease/decorator/"


@pytest.mark.parametrize("point", ["claimed", pytest.param("viewing", marks=pytest.mark.sqlite)])
def test_a_dead_owner_is_taken_over_after_its_lease(
    fleet: Server, stranger: Customer, faults: Faults, point: str
) -> None:
    """Its progress is unknown: the key stays busy until the lease ends, then the next run is
    attempt 2.
    """
    fault = faults(new_key(), point, "kill")
    first = stranger.begin(fleet, PATH, fault.key)
    fault.await_reached()
    lease_until = record(fault.key).lease_until
    answer, _ = stranger.insist(fleet, PATH, fault.key)
    assert_unanswered(first)
    assert_first(answer)
    assert latest(fault.key).created > lease_until
    assert (effects(fault.key), answer.json()["attempt"]) == (1 if point == "claimed" else 2, 2)
    assert_replay(stranger.post(fleet, PATH, fault.key), answer)


@pytest.mark.parametrize(("at", "path"), [("fleet", PATH), ("asgi", "/async/decorator/")])
def test_a_living_owner_is_not_taken_over(
    request: pytest.FixtureRequest, stranger: Customer, faults: Faults, at: str, path: str
) -> None:
    """The heartbeat renews its lease several times: 409 until it ends, then the replay."""
    server = request.getfixturevalue(at)
    fault = faults(new_key(), "viewing", "pause")
    first = stranger.begin(server, path, fault.key)
    fault.await_reached()
    began = record(fault.key)
    while record(fault.key).lease_until < began.lease_until + timedelta(seconds=LEASE):
        assert_busy(stranger.post(server, path, fault.key))
        time.sleep(POLL)  # leaves the heartbeat some of the machine
    fault.go_on()
    assert_first(first.result())
    assert_replay(stranger.post(server, path, fault.key), first.result())
    assert (effects(fault.key), record(fault.key).attempt) == (1, 1)


@pytest.mark.either_server
@pytest.mark.parametrize(
    "point",
    [
        "asking",  # while OnTakeover asks
        "settling",  # it has found the response, which is not stored
    ],
)
def test_killed_in_a_takeover(
    fleet: Server, stranger: Customer, faults: Faults, point: str
) -> None:
    """The next takeover asks again, and finds the same: the view runs once."""
    path = "/lease/looked-up/"
    first_fault = faults(new_key(), "viewing", "kill")
    first = stranger.begin(fleet, path, first_fault.key)
    first_fault.await_reached()
    assert_unanswered(first)
    fleet.await_ready()
    second_fault = faults(first_fault.key, point, "kill")
    second = stranger.begin_insisting(fleet, path, second_fault.key)
    second_fault.await_reached()
    with pytest.raises(httpx.TransportError):
        second.result()
    answer, _ = stranger.insist(fleet, path, second_fault.key)
    assert_replay(answer)
    assert_replay(stranger.post(fleet, path, second_fault.key), answer)
    assert (effects(second_fault.key), record(second_fault.key).attempt) == (1, 3)


def test_killed_after_the_settle(fleet: Server, stranger: Customer, faults: Faults) -> None:
    """A settled record is replayed at once."""
    fault = faults(new_key(), "settled", "kill")
    first = stranger.begin(fleet, PATH, fault.key)
    fault.await_reached()
    assert_replay(stranger.post(fleet, PATH, fault.key))
    assert_unanswered(first)
    assert effects(fault.key) == 1


@pytest.mark.sqlite
def test_the_late_owner_is_refused_and_told(
    fleet: Server, stranger: Customer, faults: Faults
) -> None:
    """It resumes after another has finished: the other's response is kept, and `lost` is signalled
    and logged.
    """
    fault = faults(new_key(), "viewing", "stop")
    late = stranger.begin(fleet, PATH, fault.key)
    fault.await_reached()
    answer, _ = stranger.insist(fleet, PATH, fault.key)
    assert_first(answer)
    logged = fleet.log.count("Lost: ")
    assert fault.key not in lost()
    fault.go_on()
    assert late.result().json()["attempt"] == 1  # it did the work, and reports that
    assert_replay(stranger.post(fleet, PATH, fault.key), answer)
    # Reported by the heartbeat or by the settle, whichever resumes first.
    until(lambda: fault.key in lost(), "the signal is sent")
    until(lambda: fleet.log.count("Lost: ") > logged, "the log says so")


def test_the_late_owner_wakes_while_another_works(
    fleet: Server, stranger: Customer, faults: Faults
) -> None:
    """Its settle is refused then, too: it does not end the other's lease."""
    late_fault = faults(new_key(), "viewing", "stop")
    late = stranger.begin(fleet, PATH, late_fault.key)
    late_fault.await_reached()
    held = faults(late_fault.key, "viewing", "pause")
    taking = stranger.begin_insisting(fleet, PATH, held.key)
    held.await_reached()
    late_fault.go_on()
    assert late.result().status_code == 201
    until(lambda: held.key in lost(), "the signal is sent")
    assert_busy(stranger.post(fleet, PATH, held.key))
    held.go_on()
    answer, _ = taking.result()
    assert_first(answer)
    assert_replay(stranger.post(fleet, PATH, held.key), answer)
