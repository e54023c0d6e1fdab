"""The middleware in MIDDLEWARE and once more around a view: the one that opens a guard closes
it.
"""

from __future__ import annotations

import copy
from functools import wraps
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.utils.decorators import decorator_from_middleware
from pytest_django import Settings

from django_idempotency import idempotency_exempt
from django_idempotency.core.records import Status
from django_idempotency.middleware import IdempotencyMiddleware
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect

from .conftest import KEY, Connect, effects
from .outcome_views import pay

pytestmark = [
    pytest.mark.either_server,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


def around(view: Any) -> Any:
    """Call the middleware as a handler does, like `wrap_middleware()` of django-modern-rest."""

    @wraps(view)
    def wrapper(request: HttpRequest) -> Any:
        return IdempotencyMiddleware(view)(request)

    return wrapper


def awaited_around(view: Any) -> Any:
    @wraps(view)
    async def wrapper(request: HttpRequest) -> Any:
        return await IdempotencyMiddleware(view)(request)  # type: ignore[misc]

    return wrapper


async def awaited(request: HttpRequest) -> HttpResponse:
    await Effect.objects.acreate(label="written", idempotency_key="", attempt=0)
    return HttpResponse(status=201)


@idempotency_exempt
def batch(request: HttpRequest) -> HttpResponse:
    """Send a copy of its request, with another key, through the middleware."""
    part = copy.copy(request)
    part.META = {**request.META, "HTTP_IDEMPOTENCY_KEY": "a part's key"}
    ours = IdempotencyMiddleware(
        lambda request: ours.process_view(request, pay, (), {}) or pay(request)
    )
    return ours(part)  # type: ignore[return-value]


VIEWS = {
    "called": around(pay),
    "twice": around(around(pay)),
    "hooks": decorator_from_middleware(IdempotencyMiddleware)(pay),
}
urlpatterns = [
    *(path(f"{name}/", view) for name, view in VIEWS.items()),
    path("awaited/", awaited_around(awaited)),
    path("plain/", pay),
    path("batch/", batch),
]


def completed() -> int:
    return IdempotencyRecord.objects.filter(status=Status.COMPLETED).count()


@pytest.mark.parametrize("requests", [True, False])
@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("name", VIEWS)
def test_each_request_is_remembered(
    user: User, monkeypatch: pytest.MonkeyPatch, name: str, client: Any, requests: bool
) -> None:
    """Three requests are three records and three effects, and their transactions have ended."""
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", requests)
    sender = client()
    sender.force_login(user)
    post = async_to_sync(sender.post) if client is AsyncClient else sender.post
    for number in range(3):
        response = post(f"/{name}/", headers={"Idempotency-Key": f"{KEY}-{number}"})
        assert (response.status_code, response["Idempotency-Status"]) == (201, "created")
        assert not connection.in_atomic_block
    connection.close()  # what is not committed is lost with it
    assert (effects(), completed()) == (3, 3)


def test_an_async_view_is_remembered(user: User, settings: Settings) -> None:
    settings.IDEMPOTENCY = {"GUARANTEE": "lease"}
    client = AsyncClient()
    client.force_login(user)
    assert (
        async_to_sync(client.post)("/awaited/", headers={"Idempotency-Key": KEY}).status_code == 201
    )
    assert (effects(), completed()) == (1, 1)


def test_a_second_entry_in_the_settings(user: User, connect: Connect, settings: Settings) -> None:
    """The second one stands aside."""
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, settings.MIDDLEWARE[-1]]
    send = connect("/plain/", user)
    assert send()["Idempotency-Status"] == "created"
    assert (effects(), completed()) == (1, 1)


def test_a_request_without_a_principal(user: User) -> None:
    """The outer one has let it pass, and says so; the inner one opens no guard that nobody would
    close.
    """
    for name in VIEWS:
        response = Client().post(f"/{name}/", headers={"Idempotency-Key": KEY})
        assert (response.status_code, response["Idempotency-Status"]) == (201, "unguarded")
    assert (effects(), completed(), connection.in_atomic_block) == (3, 0, False)


def test_a_copy_of_a_request_is_another(user: User, connect: Connect) -> None:
    """What the middleware knows of one request is not true of a copy of it."""
    assert connect("/batch/", user)().status_code == 201
    assert [record.key for record in IdempotencyRecord.objects.all()] == ["a part's key"]


@pytest.mark.parametrize("name", VIEWS)
def test_around_a_view_alone(user: User, connect: Connect, settings: Settings, name: str) -> None:
    """Without the one in MIDDLEWARE its process_view guards, and where nothing calls that, it
    reports that nothing does.
    """
    settings.MIDDLEWARE = settings.MIDDLEWARE[:-1]
    send = connect(f"/{name}/", user)
    assert send()["Idempotency-Status"] == ("created" if name == "hooks" else "unguarded")
    assert (effects(), completed()) == (1, int(name == "hooks"))
