"""A worker that the system stops (SIGSTOP: a paused container, a suspended host), and that resumes
late.
"""

from __future__ import annotations

import pytest
from django.db import connection

from .clients import (
    Customer,
    assert_busy,
    assert_busy_at_once,
    assert_first,
    assert_replay,
    new_key,
)
from .database import AT_COMMIT, beyond_its_lease, charges, effects, end_session, record
from .plans import Faults, until
from .servers import Server

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

PATHS = ("/api/charges/", "/plain/charges/", "/middleware/charges/")
needs_sessions = pytest.mark.skipif(
    connection.vendor == "sqlite", reason="SQLite has no sessions to end"
)


@pytest.mark.parametrize("path", PATHS)
def test_stopped_between_claim_and_guard(
    fleet: Server, customer: Customer, faults: Faults, path: str
) -> None:
    """Another takes over after CLAIM_LEASE; the late one resumes, changes nothing and responds with
    the replay.
    """
    fault = faults(new_key(), "claimed", "stop")
    late = customer.begin(fleet, path, fault.key)
    fault.await_reached()
    answer, _ = customer.insist(fleet, path, fault.key)
    assert_first(answer)
    fault.go_on()
    assert_replay(late.result(), answer)
    assert (effects(fault.key), charges(), record(fault.key).attempt) == (1, 1, 2)


@needs_sessions
def test_woken_while_the_other_works(fleet: Server, customer: Customer, faults: Faults) -> None:
    """The late one finds that its record has a new owner: 409, and one effect."""
    key = new_key()
    fault = faults(key, "claimed", "stop")
    late = customer.begin(fleet, "/api/charges/", key)
    fault.await_reached()
    held = faults(key, "written", "pause")
    taking = customer.begin_insisting(fleet, "/api/charges/", key)
    held.await_reached()
    fault.go_on()
    assert_busy(late.result())
    held.go_on()
    assert_first(taking.result()[0])
    assert (effects(key), charges()) == (1, 1)


@pytest.mark.parametrize(
    "point", ["guarded", pytest.param("written", marks=pytest.mark.sqlite), "settled", "committing"]
)
def test_stopped_in_the_guard(
    fleet: Server, customer: Customer, faults: Faults, point: str
) -> None:
    """The row lock shows that the owner lives: 409 beyond any lease, in under a second; then its
    response is kept.
    """
    fault = faults(new_key(), point, "stop")
    late = customer.begin(fleet, "/api/charges/", fault.key)
    fault.await_reached()
    until(lambda: beyond_its_lease(fault.key), "CLAIM_LEASE is over")
    assert_busy_at_once(customer, fleet, "/api/charges/", fault.key)
    fault.go_on()
    assert_first(late.result())
    assert_replay(customer.post(fleet, "/api/charges/", fault.key), late.result())
    assert (effects(fault.key), charges()) == (1, 1)


@needs_sessions
@pytest.mark.parametrize(
    ("point", "code"),
    [
        ("written", "transaction-lost"),  # it finds out when it stores the response
        ("settled", AT_COMMIT),
        ("committing", AT_COMMIT),
    ],
)
def test_stopped_in_the_guard_and_cut_off(
    fleet: Server, customer: Customer, faults: Faults, point: str, code: str
) -> None:
    """The database ends a stopped worker's session: another takes over, and the late one changes
    nothing.
    """
    fault = faults(new_key(), point, "stop")
    late = customer.begin(fleet, "/api/charges/", fault.key)
    fault.await_reached()
    end_session(fault.session)
    answer, _ = customer.insist(fleet, "/api/charges/", fault.key)
    assert_first(answer)
    fault.go_on()
    assert (late.result().status_code, late.result().json()["code"]) == (503, code)
    assert late.result().headers["Retry-After"]
    assert (effects(fault.key), charges(), record(fault.key).attempt) == (1, 1, 2)
    assert_replay(customer.post(fleet, "/api/charges/", fault.key), answer)
