"""Many requests at once, on gunicorn with 2 processes of 8 threads."""

from __future__ import annotations

import time

import pytest
from django.db import connection

from django_idempotency.core.records import Status

from .clients import (
    Customer,
    assert_busy,
    assert_busy_at_once,
    assert_first,
    assert_replay,
    new_key,
)
from .database import beyond_its_lease, charges, effects, record, records
from .plans import Faults, until
from .servers import Server

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

MANY = 50
#: One route for each entry point.
PATHS = ("/api/charges/", "/plain/charges/", "/middleware/charges/", "/middleware/api/charges/")


@pytest.mark.parametrize("path", [pytest.param(PATHS[0], marks=pytest.mark.sqlite), *PATHS[1:]])
def test_identical_requests_at_once_charge_once(
    fleet: Server, customer: Customer, path: str
) -> None:
    """There is one row and one effect; each response is the 201, first or replayed, or a 409 with a
    retry time.
    """
    key = new_key()
    answers = customer.burst(fleet, path, [key] * MANY)
    firsts = [
        answer
        for answer in answers
        if answer.status_code == 201 and "Idempotent-Replayed" not in answer.headers
    ]
    assert len(firsts) == 1
    for answer in answers:
        if answer.status_code == 409:
            assert_busy(answer)
        elif answer is not firsts[0]:
            assert_replay(answer, firsts[0])
    assert (effects(key), charges(), records()) == (1, 1, 1)


@pytest.mark.parametrize("path", PATHS)
def test_identical_requests_that_fail(fleet: Server, customer: Customer, path: str) -> None:
    """The card network is down: each run is a 500 without effect, its duplicates get 409, and the
    key ends free.
    """
    key = new_key()
    for answer in customer.burst(fleet, path, [key] * 20, card="tok_down"):
        if answer.status_code != 500:
            assert_busy(answer)
    assert (effects(key), charges(), record(key).status) == (0, 0, Status.FREE.value)


@pytest.mark.parametrize("path", PATHS)
def test_different_keys_all_run(fleet: Server, customer: Customer, path: str) -> None:
    """50 different keys are 50 charges, none refused."""
    for answer in customer.burst(fleet, path, [new_key() for _ in range(MANY)]):
        assert_first(answer)
    assert charges() == MANY


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer: others may queue")
@pytest.mark.parametrize("point", ["written", "settled"])
def test_nobody_waits_for_a_neighbour(
    fleet: Server, customer: Customer, faults: Faults, point: str
) -> None:
    """While one request is paused in its transaction, 49 others with their own keys finish."""
    slow = faults(new_key(), point, "pause")
    first = customer.begin(fleet, "/api/charges/", slow.key)
    slow.await_reached()
    for answer in customer.burst(fleet, "/api/charges/", [new_key() for _ in range(MANY - 1)]):
        assert_first(answer)
    assert not first.done()
    slow.go_on()
    assert_first(first.result())
    assert charges() == MANY


@pytest.mark.parametrize("point", ["written", "settled", "committing"])
def test_a_duplicate_is_answered_at_once(
    fleet: Server, customer: Customer, faults: Faults, point: str
) -> None:
    """It gets 409 in under a second at any point of the first request's transaction, and the replay
    after its end.
    """
    fault = faults(new_key(), point, "pause")
    first = customer.begin(fleet, "/api/charges/", fault.key)
    fault.await_reached()
    assert_busy_at_once(customer, fleet, "/api/charges/", fault.key)
    fault.go_on()
    assert_first(first.result())
    assert_replay(customer.post(fleet, "/api/charges/", fault.key), first.result())
    assert effects(fault.key) == 1


def test_a_request_slower_than_any_lease_is_not_overtaken(
    fleet: Server, customer: Customer, faults: Faults
) -> None:
    """Its CLAIM_LEASE ends while it is in the view, and a second one: duplicates get 409, and
    afterwards the replay.
    """
    fault = faults(new_key(), "written", "pause")
    first = customer.begin(fleet, "/api/charges/", fault.key)
    fault.await_reached()
    until(lambda: beyond_its_lease(fault.key), "CLAIM_LEASE is over")
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        for answer in customer.burst(fleet, "/api/charges/", [fault.key] * 5):
            assert_busy(answer)
    fault.go_on()
    assert_first(first.result())
    assert_replay(customer.post(fleet, "/api/charges/", fault.key), first.result())
    assert (effects(fault.key), charges()) == (1, 1)
