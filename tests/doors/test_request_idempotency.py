"""`request.idempotency` in the view: key, attempt, derive(), keep, drop and ttl of this one response."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from django_idempotency import idempotent
from django_idempotency.errors import SecretUnknown
from django_idempotency.models import IdempotencyRecord

from .conftest import KEY, Connect, Sender

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


@idempotent()
def view(request: HttpRequest) -> HttpResponse:
    handle: Any = request.idempotency  # type: ignore[attr-defined]
    if "ttl" in request.GET:
        handle.ttl = timedelta(minutes=5)
    if "bad-ttl" in request.GET:
        handle.ttl = 0
    keys = {label: handle.derive(label) for label in ("stripe", "bank")}
    return JsonResponse(
        {"key": handle.key, "attempt": handle.attempt, **keys}, status=int(request.GET.get("status", 201))
    )


urlpatterns = [path("view/", view)]


@pytest.fixture
def send(user: User, connect: Connect) -> Sender:
    return connect("/view/", user)


def test_key_and_attempt(send: Sender) -> None:
    """The key unquoted; the attempt counts the runs."""
    assert send(key=f'"{KEY}"', url="/view/?status=503").json()["key"] == KEY
    assert send(url="/view/?status=503").json()["attempt"] == 2


def test_the_downstream_key_is_the_same_at_every_attempt(send: Sender) -> None:
    """That is what makes an effect elsewhere happen once; labels, keys and users have their own."""
    first, second = send(url="/view/?status=503").json(), send(url="/view/?status=503").json()
    other = send(url="/view/?status=503", key="another").json()
    assert (first["stripe"], first["bank"]) == (second["stripe"], second["bank"])
    assert len({first["stripe"], first["bank"], other["stripe"], other["bank"]}) == 4
    assert len(first["stripe"]) == 64


def test_users_derive_different_keys(send: Sender, other_user: User, connect: Connect) -> None:
    """The same client key of two users means two operations."""
    assert send().json()["stripe"] != connect("/view/", other_user)().json()["stripe"]


def test_rotating_the_secret_between_attempts_changes_nothing(send: Sender, user: User, settings: Any) -> None:
    """The secret of attempt 1 is found among the fallbacks; a new operation uses the new one."""
    before = send(url="/view/?status=503").json()["stripe"]
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "rotated"
    assert send(url="/view/?status=503").json()["stripe"] == before
    settings.IDEMPOTENCY = {"DERIVE_SECRET": "its own", "DERIVE_SECRET_FALLBACKS": settings.SECRET_KEY_FALLBACKS}
    settings.SECRET_KEY_FALLBACKS = []
    send.client.force_login(user)  # whose session the rotation has ended
    assert send(url="/view/?status=503").json()["stripe"] == before
    assert send(url="/view/?status=503", key="new").json()["stripe"] != before


def test_an_unknown_secret_is_an_error_and_never_another_key(send: Sender, user: User, settings: Any) -> None:
    """Another downstream key could repeat an effect that has happened."""
    send(url="/view/?status=503")
    settings.SECRET_KEY = "rotated without a fallback"
    send.client.force_login(user)
    send.client.raise_request_exception = True
    with pytest.raises(SecretUnknown, match="DERIVE_SECRET_FALLBACKS"):
        send(url="/view/?status=503")


def test_a_response_may_have_its_own_ttl(send: Sender) -> None:
    """Counted from its completion."""
    send(url="/view/?ttl")
    record = IdempotencyRecord.objects.get()
    assert record.completed_at is not None
    assert record.expires_at - record.completed_at == timedelta(minutes=5)


def test_a_ttl_must_be_positive(send: Sender) -> None:
    """Zero would forget what has just been promised."""
    send.client.raise_request_exception = True
    with pytest.raises(ValueError, match="positive"):
        send(url="/view/?bad-ttl")
