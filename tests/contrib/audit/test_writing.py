"""What is written, in which transaction, and what happens if it cannot be."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from django_idempotency import idempotent_function
from django_idempotency.contrib.audit.models import AuditEvent
from django_idempotency.contrib.limits import Suspect
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Charge

from .helpers import committed, events, post

pytestmark = committed


def statements(act: Any) -> list[str]:
    with CaptureQueriesContext(connection) as seen:
        act()
    return [query["sql"] for query in seen]


def audited(found: list[str]) -> list[str]:
    return [sql for sql in found if "django_idempotency_audit" in sql]


def test_a_first_request_and_its_replay(api: APIClient, user: Any) -> None:
    """Each event says when, which attempt, whose request it was, and how it ended."""
    assert post(api).status_code == post(api).status_code == 201
    claimed, completed, replayed = AuditEvent.objects.order_by("pk")
    assert [each.event for each in (claimed, completed, replayed)] == [
        "claimed",
        "completed",
        "replayed",
    ]
    assert (completed.attempt, completed.outcome, replayed.attempt, replayed.outcome) == (
        1,
        "201",
        0,
        "201",
    )
    assert claimed.at < completed.at < replayed.at
    record = IdempotencyRecord.objects.get()
    for each in (claimed, completed, replayed):
        assert each.record == record.pk
        assert (each.scope, each.key, each.request_id) == (
            f"user:auth.user:{user.pk}",
            "k-1",
            "req-k-1",
        )
        assert each.actor == f"auth.user:{user.pk}"
        assert each.request == "POST api/charges/$"
    assert claimed.owner == completed.owner != replayed.owner
    assert record.owner.hex[:8] not in repr(list(AuditEvent.objects.values()))


def test_other_ends(api: APIClient) -> None:
    """A failure, its retry, and another request under the same key."""
    api.raise_request_exception = False
    post(api, card="tok_down")
    post(api, card="tok_down")
    post(api, card="tok_visa")
    assert events() == ["claimed", "released", "claimed", "released", "mismatched"]
    assert list(AuditEvent.objects.order_by("pk").values_list("attempt", flat=True)) == [
        1,
        1,
        2,
        2,
        0,
    ]
    assert [each.outcome for each in AuditEvent.objects.filter(event="released")] == [
        "NetworkDown"
    ] * 2


@pytest.mark.parametrize("with_audit", [False, True])
def test_statements(api: APIClient, settings: Settings, with_audit: bool) -> None:
    """A run costs one statement, which has both its events, and a replay one; without AUDIT there
    is none.
    """
    settings.IDEMPOTENCY = {}
    post(api, "warm")
    plain = [len(statements(lambda: post(api, "a"))) for _ in range(2)]
    settings.IDEMPOTENCY = {"AUDIT": with_audit}
    found = [statements(lambda: post(api, "b")) for _ in range(2)]
    assert [len(each) for each in found] == [count + with_audit for count in plain]
    assert [len(audited(each)) for each in found] == [with_audit, with_audit]


def test_with_the_settle(api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the event of a settle cannot be written, nothing is kept, and a retry runs."""

    def refuse(*_: Any, **__: Any) -> None:
        raise DatabaseError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(
            "django_idempotency.contrib.audit.models.AppendOnlyQuerySet.bulk_create", refuse
        )
        assert post(api).status_code == 503
    assert (Charge.objects.count(), events()) == (0, [])
    assert post(api).status_code == 201
    assert (Charge.objects.count(), events()) == (1, ["claimed", "completed"])
    assert IdempotencyRecord.objects.get().attempt == 2


def test_after_the_fact(api: APIClient, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Any other event that cannot be written is an error in the log, and the client gets its
    response.
    """
    post(api)

    def refuse(*_: Any, **__: Any) -> None:
        raise DatabaseError("the disk is full")

    monkeypatch.setattr(AuditEvent, "save", refuse)
    with caplog.at_level(logging.ERROR, "django_idempotency"):
        assert post(api).status_code == 201
    assert "lacks an event: replayed of the key k…. DatabaseError: the disk is full" in caplog.text


def test_a_rollback_of_the_caller() -> None:
    """Inside a caller's transaction the events ride on it, as the record does."""

    @idempotent_function(key_prefix="audited", data_keyword_argument="order")
    def charge(*, order: int) -> int:
        return order

    with transaction.atomic():
        charge(order=1)
        transaction.set_rollback(True)
    assert events() == []
    charge(order=1)
    assert events() == ["claimed", "completed"]
    assert set(AuditEvent.objects.values_list("actor", "outcome")) == {
        ("audited", ""),
        ("audited", "result"),
    }


def test_a_kept_failure(api: APIClient) -> None:
    """An exception that is an answer is settled after the rollback, its event with it."""

    @idempotent_function(
        key_prefix="audited", data_keyword_argument="order", keep_exceptions=(ValueError,)
    )
    def charge(*, order: int) -> int:
        raise ValueError(order)

    with pytest.raises(ValueError, match="1"):
        charge(order=1)
    assert list(AuditEvent.objects.order_by("pk").values_list("event", "outcome")) == [
        ("claimed", ""),
        ("completed", "error"),
    ]


SUSPECT = Suspect("body.[amount, currency]")


@pytest.mark.any_database
def test_suspected(settings: Settings, api: APIClient) -> None:
    """A suspicion is raised in the work's transaction, and survives its rollback with the claim."""
    settings.IDEMPOTENCY = {"AUDIT": True, "EXTENSIONS": [f"{__name__}.SUSPECT"]}
    api.raise_request_exception = False
    post(api, "first")
    post(api, "second", card="tok_down")
    assert events(key="second") == ["claimed", "suspected", "released"]
