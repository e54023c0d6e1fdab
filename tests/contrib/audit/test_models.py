"""Rows are written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from django_idempotency.contrib.audit.models import AuditEvent, Reference
from django_idempotency.errors import AppendOnly
from django_idempotency.stores.base import utcnow

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]


@pytest.fixture(params=[AuditEvent, Reference])
def row(request: pytest.FixtureRequest) -> Any:
    facts: dict[str, Any] = {"record": uuid4(), "scope": "scope:a", "key": "k", "at": utcnow()}
    if request.param is Reference:
        return Reference.objects.create(
            **facts, operation=uuid4(), kind="payment", value_hash=uuid4(), value="17"
        )
    return AuditEvent.objects.create(**facts, event="claimed")


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.save(),
        lambda row: type(row).objects.get().save(),
        lambda row: row.delete(),
        lambda row: type(row).objects.update(key="other"),
        lambda row: type(row).objects.filter(pk=row.pk).delete(),
        lambda row: type(row).objects.all().bulk_update([row], ["key"]),
        lambda row: type(row).objects.update_or_create(pk=row.pk, defaults={"key": "other"}),
    ],
    ids=[
        "save",
        "save again",
        "delete",
        "update",
        "delete many",
        "bulk_update",
        "update_or_create",
    ],
)
def test_no_row_changes(row: Any, change: Callable[[Any], Any]) -> None:
    """A change raises, and the row stays as it was."""
    with pytest.raises(AppendOnly, match="purge_idempotency"):
        change(row)
    assert type(row).objects.get().key == "k"
