"""IDEMPOTENCY_DISABLED at every entry point: requests run as if we were not installed; their views
see no change.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.test import AsyncClient
from django.test.utils import CaptureQueriesContext
from django.urls import path

from django_idempotency import idempotent
from django_idempotency.http.exchange import RequestIdempotency
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime import switch

from .conftest import KEY, Connect, Sender, effects

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switch.VARIABLE, "on")
    monkeypatch.setattr(switch, "_warned", False)


def statements(entry_point: Sender, **sent: Any) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert entry_point(**sent).status_code == 201
    assert not any(IdempotencyRecord._meta.db_table in query["sql"] for query in queries)
    return len(queries)


def test_every_request_runs(entry_point: Sender, caplog: pytest.LogCaptureFixture) -> None:
    """A request that is sent twice runs twice, without any statement of ours, and with one
    warning.
    """
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        assert statements(entry_point) == statements(entry_point)
    assert effects() == 2
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "Idempotency is off"
    ]


@pytest.mark.parametrize("key", [None, "", "a,b", "é", "k" * 256])
def test_no_key_is_judged(entry_point: Sender, key: str | None) -> None:
    """A missing key where one is required passes, and so does a malformed one."""
    assert entry_point(key=key).status_code == 201


def test_nothing_is_reported_without_a_key(browser: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A request without a key does not warn: it would not have been guarded."""
    assert (
        browser.post(
            "/plain/charges/", {"amount": 1, "currency": "inr"}, "application/json"
        ).status_code
        == 201
    )
    assert caplog.records == []


def test_a_spelling_that_is_neither_is_an_error(
    connect: Connect, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing runs while the switch is unreadable."""
    monkeypatch.setenv(switch.VARIABLE, "maybe")
    assert connect("/plain/charges/", user)().status_code == 500
    assert effects() == 0


def test_on_again_it_guards(entry_point: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch is read at each request; what ran meanwhile was not recorded."""
    entry_point()
    monkeypatch.setenv(switch.VARIABLE, "off")
    assert [entry_point().get("Idempotent-Replayed") for _ in range(2)] == [None, "true"]
    assert effects() == 2


# ------------------------------------------------------------------------------- what the view sees


def described(request: HttpRequest) -> JsonResponse:
    handle: Any = request.idempotency  # type: ignore[attr-defined]
    assert isinstance(handle, RequestIdempotency)
    handle.keep()
    handle.drop()
    handle.ttl = 60
    return JsonResponse(
        {
            "key": handle.key,
            "attempt": handle.attempt,
            "lost": handle.lost,
            "stripe": handle.derive("stripe"),
        }
    )


@idempotent(required=True)
def view(request: HttpRequest) -> JsonResponse:
    return described(request)


@idempotent(guarantee="lease", required=True)
async def aview(request: HttpRequest) -> JsonResponse:
    return described(request)


urlpatterns = [path("view/", view), path("aview/", aview)]


@pytest.mark.urls(__name__)
def test_the_view_has_its_handle(user: User, connect: Connect) -> None:
    """The view has a first attempt, whose downstream keys follow from the client's key, quoted or
    not.
    """
    send = connect("/view/", user)
    first, again, other = send().json(), send(key=f'"{KEY}"').json(), send(key="another").json()
    assert (first["key"], first["attempt"], first["lost"], len(first["stripe"])) == (
        KEY,
        1,
        False,
        64,
    )
    assert again == first
    assert other["stripe"] != first["stripe"]


@pytest.mark.urls(__name__)
@pytest.mark.parametrize("key", [None, "", "é", "k" * 256])
def test_without_a_good_key_each_request_is_its_own(
    user: User, connect: Connect, key: str | None
) -> None:
    """Two payments must not become one at the provider, and the view needs a key of the usual
    form.
    """
    send = connect("/view/", user)
    first, second = send(key=key).json(), send(key=key).json()
    assert first["stripe"] != second["stripe"]
    assert 0 < len(first["key"]) <= 255
    assert first["key"].isascii()


@pytest.mark.urls(__name__)
def test_an_async_view_too() -> None:
    """No session and no user is read."""
    answer = async_to_sync(AsyncClient().post)("/aview/", headers={"Idempotency-Key": KEY})
    assert (answer.status_code, answer.json()["attempt"]) == (200, 1)
