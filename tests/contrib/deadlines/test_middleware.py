"""Requests with a deadline: late ones do no work, and those in time run to their end."""

from __future__ import annotations

import time
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client
from django.urls import path
from pytest_django import Settings

from django_idempotency import idempotent, idempotent_function
from django_idempotency.engine import deadlines
from django_idempotency.models import IdempotencyRecord

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

DEADLINES = "django_idempotency.contrib.deadlines.middleware.DeadlineMiddleware"
OURS = "django_idempotency.middleware.IdempotencyMiddleware"
KEY = {"Idempotency-Key": "a-key-that-is-long-enough"}
PAST = {"X-Request-Deadline": "2026-01-01T00:00:00Z"}
#: What the views have seen: the seconds until their host stops, and when their client stops
#: waiting.
seen: list[tuple[float | None, float | None]] = []


def note() -> HttpResponse:
    seen.append((deadlines.remaining(), deadlines.CALLER_ENDS.get()))
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


@idempotent_function(guarantee="lease", key_prefix="late-function")
def charge(order: int) -> None:
    note()


@idempotent(anonymous="shared", guarantee="lease")
def slow(request: HttpRequest) -> HttpResponse:
    time.sleep(0.3)  # its client has gone
    charge(17)
    return JsonResponse({})


urlpatterns = [path(f"{view.__name__}/", view) for view in (atomic, leased, async_leased, slow)]
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
    assert (
        response.status_code,
        response.json()["type"].rpartition("/")[2].rpartition(":")[2],
    ) == (
        504,
        "deadline-passed",
    )
    assert (seen, IdempotencyRecord.objects.count()) == ([], 0)
    assert post(name, {"Request-Timeout": "20"}, is_async=is_async).json() == {"runs": 1}
    # Nobody waits for the replay either.
    assert post(name, PAST, is_async=is_async).status_code == 504
    assert post(name, {}, is_async=is_async).json() == {"runs": 1}


@pytest.mark.parametrize("name", GUARDED)
def test_a_request_in_time(name: str) -> None:
    """The view knows when its client stops waiting.

    The host does not stop then, so no lease ends with it.
    """
    post(name, {"grpc-timeout": "20S"})
    ((host, caller),) = seen
    assert host is None
    assert caller is not None
    assert 10 < caller - time.time() <= 20
    assert deadlines.CALLER_ENDS.get() is None


def test_what_has_begun_runs_on() -> None:
    """No deadline of a client breaks work off between two of its effects, and a retry gets the
    result.
    """
    assert post("slow", {"Request-Timeout": "0.2"}).status_code == 200
    assert len(seen) == 1
    assert post("slow", {})["Idempotent-Replayed"] == "true"
    assert len(seen) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_malformed(is_async: bool) -> None:
    """A deadline that cannot be read is the client's to mend: nothing was done."""
    response = post("atomic", {"Request-Timeout": "soon"}, is_async=is_async)
    assert response.status_code == 400
    assert "number of seconds" in response.json()["detail"]
    assert seen == []
