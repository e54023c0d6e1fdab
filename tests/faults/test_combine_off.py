"""`combine=False`, killed and cut off around COMMIT.

`make reach` runs all the other faults with it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.combining import COMBINED

from .clients import Customer, assert_first, assert_replay, assert_unanswered, new_key
from .database import charges, effects, end_session, record
from .plans import Faults, lost
from .proxy import Proxy
from .servers import Server, gunicorn
from .test_outages import assert_unavailable

pytestmark = [
    pytest.mark.faults,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not COMBINED, reason="nothing is combined anyway"),
]

PATH = "/api/charges/"


@pytest.fixture(scope="module")
def apart(
    faults_folder: Path, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Return gunicorn with a database behind the proxy, each statement alone."""
    given = {"POSTGRESQL_PORT": str(proxy.port), "STORE_OPTIONS": '{"combine": false}'}
    with gunicorn(tmp_path_factory.mktemp("apart"), **given) as server:
        yield server


def test_killed_before_commit(apart: Server, customer: Customer, faults: Faults) -> None:
    """The settle of a dead worker is rolled back, and the retry runs."""
    apart.await_ready()
    fault = faults(new_key(), "committing", "kill")
    first = customer.begin(apart, PATH, fault.key)
    fault.await_reached()
    answer, _ = customer.insist(apart, PATH, fault.key)
    assert_unanswered(first)
    assert_first(answer)
    assert (effects(fault.key), charges(), record(fault.key).attempt) == (1, 1, 2)


def test_killed_after_commit(apart: Server, customer: Customer, faults: Faults) -> None:
    """The retry gets the response."""
    apart.await_ready()
    fault = faults(new_key(), "committed", "kill")
    first = customer.begin(apart, PATH, fault.key)
    fault.await_reached()
    assert_replay(customer.post(apart, PATH, fault.key))
    assert_unanswered(first)
    assert (effects(fault.key), charges(), record(fault.key).attempt) == (1, 1, 1)


@pytest.mark.parametrize(
    "committed", [False, True], ids=["the session ends", "the response is lost"]
)
def test_no_response_to_commit(
    apart: Server, proxy: Proxy, customer: Customer, faults: Faults, committed: bool
) -> None:
    """The outcome is unknown: 503, nothing is released, and the retry finds out."""
    apart.await_ready()
    fault = faults(new_key(), "committing", "pause")
    first = customer.begin(apart, PATH, fault.key)
    fault.await_reached()
    try:
        if committed:
            proxy.swallow()
        else:
            end_session(fault.session)
        fault.go_on()
        assert_unavailable(first.result(), "outcome-unknown")
    finally:
        proxy.mend()
    assert fault.key in lost()
    answer, _ = customer.insist(apart, PATH, fault.key)
    (assert_replay if committed else assert_first)(answer)
    assert (effects(fault.key), record(fault.key).attempt) == (1, 1 if committed else 2)
