"""The table of repeats: summed over batches, cleaned as it grows, and not in the way of a
request.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_idempotency.core.records import Counted, Repeats
from django_idempotency.instrumentation.repeats import repeats
from django_idempotency.models import IdempotencyRecord, RepeatCount
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.base import utcnow
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import NOW, make_ticket
from tests.entry_points.conftest import Connect, connect  # noqa: F401 - a fixture

LATER = NOW + timedelta(seconds=5)


@pytest.mark.django_db
def test_batches_are_summed() -> None:
    store, one, other = ORMStore(), make_ticket().id, make_ticket(key="other").id
    assert store.repeats(one) is None
    store.add_repeats(
        [Counted(one, Repeats(3, 1, LATER), LATER), Counted(other, Repeats(1, 0, NOW), LATER)]
    )
    store.add_repeats([Counted(one, Repeats(2, 0, NOW), LATER)])
    assert store.repeats(one) == Repeats(5, 1, LATER)
    assert store.repeats(other) == Repeats(1, 0, NOW)


@pytest.mark.django_db
def test_what_is_purged_is_deleted_by_later_batches() -> None:
    """A batch deletes rows whose record is due, oldest first, and no others."""
    store, old, new = ORMStore(), make_ticket().id, make_ticket(key="new").id
    store.add_repeats([Counted(old, Repeats(1, 0, NOW), utcnow() - timedelta(days=1))])
    store.add_repeats([Counted(new, Repeats(1, 0, NOW), utcnow() + timedelta(days=1))])
    assert list(RepeatCount.objects.values_list("record_id", flat=True)) == [new]


@pytest.fixture
def send(user: User, connect: Connect) -> Any:  # noqa: F811 - the fixture
    return connect("/api/charges/", user)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("counts", [True, False])
def test_requests_write_nothing(
    settings: Any, send: Any, monkeypatch: pytest.MonkeyPatch, counts: bool
) -> None:
    """Counted or not, a replay sends the same statements; what was counted is there after the
    batch.
    """
    monkeypatch.setattr(type(repeats), "_start", lambda self: None)
    repeats.reset_after_fork()
    settings.IDEMPOTENCY = {**getattr(settings, "IDEMPOTENCY", {}), "COUNT_REPLAYS": counts}
    send()
    with CaptureQueriesContext(connection) as queries:
        send()
    assert not [query["sql"] for query in queries if "repeats" in query["sql"]]
    send()
    assert send({"amount": 1, "currency": "inr"}).status_code == 422
    repeats.flush()
    found = stores["default"].repeats(IdempotencyRecord.objects.get().pk)
    if counts:
        assert found is not None
        assert found[:2] == (2, 1)
    else:
        assert found is None
