"""A raised `Http404` is remembered, so its first response says so, as a replay does, where Django
lets us.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.views import View
from pytest_django import Settings
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import idempotent
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect

from .conftest import KEY, effects

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.any_database,
    pytest.mark.urls(__name__),
]


def bare(request: HttpRequest) -> HttpResponse:
    Effect.objects.create(label="counted")
    raise Http404


@idempotent(guarantee="lease")
async def awaited(request: HttpRequest) -> HttpResponse:
    await Effect.objects.acreate(label="counted")
    raise Http404


@idempotent()
class Classic(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return bare(request)


class Mixed(IdempotentViewMixin, APIView):
    authentication_classes = (SessionAuthentication,)

    def post(self, request: Request) -> Response:
        bare(request._request)
        return Response()


def told(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Make a response of its own from a 404, above the guard."""

    @functools.wraps(view)
    def telling(request: HttpRequest) -> HttpResponse:
        try:
            return view(request)
        except Http404:
            return HttpResponse("told", status=418)

    return telling


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return HttpResponse(f"nothing here: {type(exception).__name__}", status=404)


handler404 = not_found
decorated = idempotent()(bare)
urlpatterns = [
    path("decorated/", decorated),
    path("awaited/", awaited),
    path("class/", Classic.as_view()),
    path("mixed/", Mixed.as_view()),
    path("middleware/", bare),
    path("told/", told(decorated)),
]
GUARD = "IdempotencyMiddleware"


@pytest.fixture
def send(user: User, settings: Settings) -> Callable[..., Any]:
    """Return a function that posts; our middleware is there for the route that needs it."""

    def send(name: str, *, key: str | None = KEY) -> Any:
        settings.MIDDLEWARE = [
            each for each in settings.MIDDLEWARE if GUARD not in each or name == "middleware"
        ]
        client = Client()
        client.force_login(user)
        return client.post(f"/{name}/", headers={} if key is None else {"Idempotency-Key": key})

    return send


@pytest.mark.parametrize("name", ["decorated", "awaited", "class", "mixed", "middleware"])
def test_what_the_first_response_says(send: Callable[..., Any], name: str) -> None:
    """The first response is the one that is remembered, and its status says that it is."""
    bare_response, first, retry = send(name, key=None), send(name), send(name)
    assert [bare_response.status_code, first.status_code, retry.status_code] == [404] * 3
    assert bare_response.content == first.content == retry.content
    assert (first["Idempotency-Status"], retry["Idempotency-Status"], effects()) == (
        "created",
        "replayed",
        2,
    )
    assert first["Original-Request"] == retry["Original-Request"]


def test_under_asgi(user: User, settings: Settings) -> None:
    """An async view under an async server, too."""
    settings.MIDDLEWARE = [each for each in settings.MIDDLEWARE if GUARD not in each]
    client = AsyncClient()
    client.force_login(user)
    post = async_to_sync(client.post)
    said = [
        post("/awaited/", headers={"Idempotency-Key": KEY})["Idempotency-Status"] for _ in range(2)
    ]
    assert said == ["created", "replayed"]


def test_a_decorator_above_still_sees_the_exception(send: Callable[..., Any]) -> None:
    """What stands around the guard gets the exception, as without a key."""
    assert [send("told", key=None).content, send("told").content] == [b"told"] * 2


class Noticing:
    """Has a `process_exception`, which would miss what is not raised."""

    seen: list[type[Exception]] = []  # noqa: RUF012 - emptied by its test

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response: HttpResponse = self.get_response(request)
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> None:
        self.seen.append(type(exception))


def test_a_middleware_still_sees_the_exception(
    send: Callable[..., Any], settings: Settings
) -> None:
    """Then Django makes the response, and only our middleware can set its header."""
    Noticing.seen.clear()
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.Noticing"]
    first = send("decorated")
    assert (first.status_code, "Idempotency-Status" in first, Noticing.seen) == (
        404,
        False,
        [Http404],
    )


def test_while_debugging_django_shows_more(send: Callable[..., Any], settings: Settings) -> None:
    """With DEBUG the page of a 404 is Django's own."""
    settings.DEBUG = True
    assert b"nothing here" not in send("decorated").content
