"""Requests with a deadline: late ones do no work, those in time neither wait nor begin anything beyond it."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client
from django.urls import path
from pytest_django import Settings

from django_idempotency import idempotent, idempotent_function
from django_idempotency.engine import deadlines
from django_idempotency.models import IdempotencyRecord

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

DEADLINES = "django_idempotency.contrib.deadlines.middleware.DeadlineMiddleware"
OURS = "django_idempotency.middleware.IdempotencyMiddleware"
KEY = {"Idempotency-Key": "a-key-that-is-long-enough"}
PAST = {"X-Request-Deadline": "2026-01-01T00:00:00Z"}
#: What the views have seen: the seconds left, and those until their host stops.
seen: list[tuple[float | None, float | None]] = []


def note() -> HttpResponse:
    seen.append((deadlines.remaining(), deadlines.host_remaining()))
    return JsonResponse({"runs": len(seen)})


@idempotent(anonymous="shared")
def atomic(request: HttpRequest) -> HttpResponse:
    return note()


@idempotent(anonymous="shared", guarantee="lease")
def leased(request: HttpRequest) -> HttpResponse:
    return note()


@idempotent(anonymous="shared", guarantee="lease")
async def async_leased(request: HttpRequest) -> HttpResponse:
    return note()


@idempotent(anonymous="shared", guarantee="lease", on_busy="wait", wait=30)
def patient(request: HttpRequest) -> HttpResponse:
    return note()


@idempotent_function(guarantee="lease", key_prefix="late-function")
def charge(order: int) -> None:
    note()


def calls_late(request: HttpRequest) -> HttpResponse:
    with patch.object(deadlines, "remaining", lambda: 0.0):  # it has taken too long
        charge(17)
    raise AssertionError


urlpatterns = [path(f"{view.__name__}/", view) for view in (atomic, leased, async_leased, patient, calls_late)]
GUARDED = ("atomic", "leased", "async_leased")


@pytest.fixture(autouse=True)
def middleware(settings: Settings) -> None:
    settings.MIDDLEWARE = [DEADLINES, OURS]
    seen.clear()


def post(name: str, headers: dict[str, str], *, is_async: bool = False) -> Any:
    if is_async:
        return async_to_sync(AsyncClient().post)(f"/{name}/", headers=KEY | headers)
    return Client().post(f"/{name}/", headers=KEY | headers)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", GUARDED)
def test_a_late_request(name: str, is_async: bool) -> None:
    """It does nothing, also with a key that was never seen; later, in time, the key runs."""
    response = post(name, PAST, is_async=is_async)
    assert (response.status_code, response.json()["type"].rpartition("/")[2].rpartition(":")[2]) == (
        504,
        "deadline-passed",
    )
    assert (seen, IdempotencyRecord.objects.count()) == ([], 0)
    assert post(name, {"Request-Timeout": "20"}, is_async=is_async).json() == {"runs": 1}
    assert post(name, PAST, is_async=is_async).status_code == 504  # nobody waits for the replay either
    assert post(name, {}, is_async=is_async).json() == {"runs": 1}


@pytest.mark.parametrize("name", GUARDED)
def test_a_request_in_time(name: str) -> None:
    """The view knows its deadline. The host does not stop at it, so no lease ends with it."""
    post(name, {"grpc-timeout": "20S"})
    ((left, host),) = seen
    assert left is not None
    assert 10 < left <= 20
    assert host is None


def test_a_deadline_that_passes_before_the_view() -> None:
    """Once the claim is made, it is too late: the key is free again, and the retry runs."""
    for name in GUARDED:
        with patch.object(deadlines, "remaining", side_effect=[20.0, 0.0]):
            response = post(name, {"Request-Timeout": "20"})
        assert (response.status_code, seen) == (504, [])
        assert post(name, {}).status_code == 200
        seen.clear()
        IdempotencyRecord.objects.all().delete()


def test_a_busy_key() -> None:
    """A request waits for the running one no longer than its client waits for it."""
    post("patient", {})
    IdempotencyRecord.objects.update(status=1, expires_at=IdempotencyRecord.objects.get().purge_at)
    began = time.monotonic()
    response = post("patient", {"Request-Timeout": "0.2"})
    assert (response.status_code, response.json()["title"]) == (409, "A request with this idempotency key is running")
    assert 0.1 < time.monotonic() - began < 15


@pytest.mark.parametrize("is_async", [False, True])
def test_malformed(is_async: bool) -> None:
    """A deadline that cannot be read is the client's to mend: nothing was done."""
    response = post("atomic", {"Request-Timeout": "soon"}, is_async=is_async)
    assert response.status_code == 400
    assert "number of seconds" in response.json()["detail"]
    assert seen == []


def test_a_function_that_is_called_too_late() -> None:
    """It does not run, and the view that no guard covers responds like one."""
    response = post("calls_late", {"Request-Timeout": "20"})
    assert (response.status_code, seen) == (504, [])
