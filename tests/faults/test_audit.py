"""`kill -9` beside the audit trail: a response has its event, and an event its response, or neither
is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from django_idempotency.contrib.audit.models import AuditEvent
from django_idempotency.core.records import Status

from .clients import Customer, assert_first, assert_replay, assert_unanswered, new_key
from .database import charges, effects, record
from .plans import Faults
from .servers import Server, gunicorn

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="module")
def audited(faults_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return gunicorn with AUDIT."""
    with gunicorn(tmp_path_factory.mktemp("audited"), AUDIT="1") as server:
        yield server


def events(key: str) -> list[tuple[str, int]]:
    return list(AuditEvent.objects.filter(key=key).order_by("pk").values_list("event", "attempt"))


@pytest.mark.parametrize("point", ["settled", pytest.param("committing", marks=pytest.mark.sqlite)])
@pytest.mark.parametrize("path", ["/api/charges/", "/middleware/charges/"])
def test_killed_before_commit(
    audited: Server, customer: Customer, faults: Faults, point: str, path: str
) -> None:
    """Between the settle and COMMIT: no response and no event.

    The retry has both, and says that it took over.
    """
    audited.await_ready()
    fault = faults(new_key(), point, "kill")
    first = customer.begin(audited, path, fault.key)
    fault.await_reached()
    assert_unanswered(first)
    assert (events(fault.key), record(fault.key).status) == ([], Status.RUNNING.value)
    answer, _ = customer.insist(audited, path, fault.key)
    assert_first(answer)
    assert [each for each in events(fault.key) if each[0] != "busy"] == [
        ("taken_over", 2),
        ("completed", 2),
    ]
    assert (effects(fault.key), charges()) == (1, 1)


@pytest.mark.parametrize(
    "path", [pytest.param("/api/charges/", marks=pytest.mark.sqlite), "/middleware/charges/"]
)
def test_killed_after_commit(
    audited: Server, customer: Customer, faults: Faults, path: str
) -> None:
    """After COMMIT: the response and its event are there, although the worker never heard of it."""
    audited.await_ready()
    fault = faults(new_key(), "committed", "kill")
    first = customer.begin(audited, path, fault.key)
    fault.await_reached()
    assert_unanswered(first)
    assert events(fault.key) == [("claimed", 1), ("completed", 1)]
    assert_replay(customer.post(audited, path, fault.key))
    assert events(fault.key)[2:] == [("replayed", 0)]
