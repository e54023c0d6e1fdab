"""A change by hand is reported as done if, and only if, it was written."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from django_idempotency.core.interventions import Intervention
from django_idempotency.errors import (
    IdempotencyError,
    LostRace,
    OutcomeUnknown,
    OwnershipLost,
    StoreUnavailable,
)
from django_idempotency.functions.decorator import idempotent_function
from django_idempotency.inspection.interventions import VERBS, intervene
from django_idempotency.instrumentation.trail import trail
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores


@idempotent_function(key="order", key_prefix="interventions")
def charge(*, order: int) -> str:
    return f"ada@example.com {order}"


def by_hand(verb: str, record: UUID, store: Any = None) -> Intervention:
    return intervene(
        VERBS[verb], store or stores["default"], record, alias="default", actor="op", reason="why"
    )[0]


@pytest.mark.any_database
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", ["erase", "release", "expire"])
def test_a_trail_that_breaks_the_transaction(
    verb: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the connection breaks as the trail is written, the change is rolled back, and nobody is
    told that it was made.
    """
    charge(order=1)
    before = IdempotencyRecord.objects.values().get()

    def breaks(*_: Any, **__: Any) -> None:
        # As Django does after a connection was lost in an inner block.
        transaction.set_rollback(True)

    monkeypatch.setattr(type(trail), "intervened", breaks)
    with pytest.raises(StoreUnavailable, match="rolled back"):
        by_hand(verb, before["id"])
    assert IdempotencyRecord.objects.values().get() == before
    assert "perhaps" in caplog.text.lower() or "Attempted" in caplog.text, caplog.text


class Refusing:
    """A store whose change fails after the audit was called."""

    def __init__(self, error: IdempotencyError) -> None:
        self.error = error

    def change(self, record_id: UUID, wanted: Any, *, audit: Any) -> Intervention:
        audit(stores["default"].get(record_id))
        raise self.error


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("error", "logged"),
    [(LostRace(), 0), (OwnershipLost(), 0), (StoreUnavailable(), 1), (OutcomeUnknown(), 1)],
)
def test_what_was_not_written_is_not_logged(
    error: IdempotencyError, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A race that was lost wrote nothing; what may have been written is logged as that."""
    charge(order=2)
    record = IdempotencyRecord.objects.get().pk
    caplog.clear()
    with caplog.at_level(logging.WARNING), pytest.raises(type(error)):
        by_hand("release", record, Refusing(error))
    assert len([each for each in caplog.records if "by op" in each.getMessage()]) == logged
