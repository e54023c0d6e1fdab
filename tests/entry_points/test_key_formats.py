"""`key_format` at every entry point: one key however it is spelled, and no run under a key that is
too old.
"""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import path
from pytest_django import Settings

from django_idempotency import idempotent
from django_idempotency.core.key_formats import AHEAD
from django_idempotency.models import IdempotencyRecord
from testproject.urls import urlpatterns as project_urls

from .conftest import CHARGE, KEY, Connect, Sender, effects
from .views import work

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


DAY = 86400  # the default ttl


def uuid7(age: float) -> str:
    """Return a UUIDv7 that was made so many seconds ago."""
    return str(UUID(int=round((time.time() - age) * 1000) << 80 | 7 << 76 | 2 << 62 | 17))


@pytest.mark.parametrize(
    "again", [KEY.upper(), "{" + KEY + "}", KEY.replace("-", ""), f'"urn:uuid:{KEY}"']
)
def test_a_key_is_one_key(entry_point: Sender, settings: Settings, again: str) -> None:
    """A retry that spells the UUID otherwise gets the first response.

    Without the format it would be another key.
    """
    settings.IDEMPOTENCY = {"KEY_FORMAT": "uuid4"}
    first, retry = entry_point(), entry_point(key=again)
    assert (retry.content, retry["Idempotency-Status"]) == (first.content, "replayed")
    assert IdempotencyRecord.objects.get().key == KEY
    assert effects() == 1


@pytest.mark.parametrize(
    "key",
    [
        "order-17",
        KEY[:-1],
        "00000000-0000-0000-0000-000000000000",
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
    ],
)
def test_another_key_is_refused(entry_point: Sender, settings: Settings, key: str) -> None:
    """Nothing runs, nothing is stored, and the client reads what to send."""
    settings.IDEMPOTENCY = {"KEY_FORMAT": "uuid4"}
    refused = entry_point(key=key)
    assert (refused.status_code, refused.json()["code"], refused["Idempotency-Status"]) == (
        400,
        "key-malformed",
        "refused",
    )
    assert refused.json()["detail"] == "The idempotency key must be a UUID of version 4."
    assert (effects(), IdempotencyRecord.objects.exists()) == (0, False)


def test_a_regular_expression(entry_point: Sender, settings: Settings) -> None:
    """The whole key must match."""
    settings.IDEMPOTENCY = {"KEY_FORMAT": re.compile(r"order-\d+")}
    assert entry_point(key="order-17").status_code == 201
    assert (
        entry_point(key="order-17x").json()["detail"]
        == r"The idempotency key must be text that matches order-\d+."
    )


def test_a_late_retry_is_refused_though_its_record_is_gone(
    entry_point: Sender, settings: Settings
) -> None:
    """Where any other key would run again, this one cannot: not even if it was never seen."""
    settings.IDEMPOTENCY = {"KEY_FORMAT": "uuid7"}
    for key in (uuid7(DAY + 1), uuid7(-AHEAD - 60)):
        refused = entry_point(key=key)
        assert refused.status_code == 412
        assert refused["Cache-Control"] == "no-store"
        assert refused.json()["code"] == ("key-expired" if key < uuid7(0) else "key-ahead")
        assert refused["Idempotency-Status"] == ("expired" if key < uuid7(0) else "refused")
    assert (effects(), IdempotencyRecord.objects.exists()) == (0, False)


def test_a_record_outlives_its_key(entry_point: Sender, settings: Settings) -> None:
    """It is kept for longer than the key is accepted, so an accepted key always finds its
    record.
    """
    settings.IDEMPOTENCY = {"KEY_FORMAT": "uuid7"}
    key = uuid7(-AHEAD + 60)
    assert [entry_point(key=key)["Idempotency-Status"] for _ in range(2)] == ["created", "replayed"]
    record = IdempotencyRecord.objects.get()
    assert record.expires_at - record.created_at == timedelta(seconds=DAY + 2 * AHEAD)


# --------------------------------------------------------------------------------- from the payload


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (KEY, "replayed"),
        (KEY.upper(), "replayed"),
        (KEY.replace("-", ""), "replayed"),
        ("919108f7-52d1-4320-9bac-f847db4148a8", "created"),
        ("order-17", "refused"),
        (17, "refused"),
        ([KEY], "refused"),
    ],
)
def test_a_selected_key_has_the_format_too(
    entry_point: Sender, settings: Settings, sent: Any, status: str
) -> None:
    """One text, in any spelling."""
    settings.IDEMPOTENCY = {
        "KEY": "body.request_id",
        "KEY_FORMAT": "uuid",
        "FINGERPRINT": "body.amount",
    }
    first = entry_point({**CHARGE, "request_id": KEY}, key=None)
    assert first["Idempotency-Status"] == "created"
    response = entry_point({**CHARGE, "request_id": sent}, key=None)
    assert response["Idempotency-Status"] == status
    assert effects() == (2 if status == "created" else 1)


def test_a_selected_key_may_be_too_old(entry_point: Sender, settings: Settings) -> None:
    """As one of the header."""
    settings.IDEMPOTENCY = {"KEY": "body.request_id", "KEY_FORMAT": "uuid7"}
    assert (
        entry_point({**CHARGE, "request_id": uuid7(2 * DAY)}, key=None).json()["code"]
        == "key-expired"
    )


# ----------------------------------------------------------------------------------------- a policy


def of_header(request: HttpRequest) -> Any:
    return UUID(request.headers["X-Order"]) if "X-Order" in request.headers else None


@idempotent(key_format="uuid", key=of_header)
def shown(request: HttpRequest) -> JsonResponse:
    handle: Any = request.idempotency  # type: ignore[attr-defined]
    return JsonResponse({"key": handle.key, "id": work()})


urlpatterns = [*project_urls, path("shown/", shown)]


def test_the_view_sees_the_spelling_that_is_kept(user: User, connect: Connect) -> None:
    """So does what it derives from."""
    assert connect("/shown/", user)(key=KEY.upper()).json()["key"] == KEY


def test_a_function_may_return_a_uuid(browser: Client) -> None:
    """Its text counts."""
    responses = [
        browser.post("/shown/", headers={"X-Order": spelling}) for spelling in (KEY, KEY.upper())
    ]
    assert [each["Idempotency-Status"] for each in responses] == ["created", "replayed"]


def test_observed(user: User, connect: Connect, observed: Any, settings: Settings) -> None:
    """Before a format is enforced, the clients that do not keep to it can be counted."""
    settings.IDEMPOTENCY = {
        "MODE": "django_idempotency.contrib.observe.OBSERVE",
        "KEY_FORMAT": "uuid7",
    }
    assert connect("/plain/charges/", user)().status_code == 201
    assert connect("/plain/charges/", user)(key=uuid7(2 * DAY)).status_code == 201
    assert observed.would == ["key-malformed", "key-expired"]
