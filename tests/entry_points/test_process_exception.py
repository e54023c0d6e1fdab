"""A middleware of the project's whose process_exception responds: it is outside of every guard."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from pytest_django import Settings
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import idempotent
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect

from .conftest import KEY, effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


class Answering:
    """Makes a response of its own from what a view raises."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse:
        return answer(exception)


class Templating(Answering):
    """Adds to the context of every template response, as usual."""

    def process_template_response(self, request: HttpRequest, response: Any) -> Any:
        response.context_data["added"] = True
        return response


def answer(exception: Exception) -> HttpResponse:
    return HttpResponse(type(exception).__name__, status=418)


def answered(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Respond as the middleware does, but where the guard sees it."""

    @functools.wraps(view)
    def answering(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - every one gets a response
            return answer(error)

    return answering


def raising(error: type[Exception]) -> Callable[[HttpRequest], HttpResponse]:
    def view(request: HttpRequest) -> HttpResponse:
        Effect.objects.create(label="counted")
        raise error

    return view


def charged_and_failing(request: HttpRequest) -> HttpResponse:
    def fail() -> None:
        raise LookupError

    Effect.objects.create(label="charged")
    transaction.on_commit(fail)
    return HttpResponse(status=201)


def bare(request: HttpRequest) -> HttpResponse:
    return raising(Http404)(request)


class Mixed(IdempotentViewMixin, APIView):
    authentication_classes = (SessionAuthentication,)

    def post(self, request: Request) -> Response:
        Effect.objects.create(label="counted")
        raise SuspiciousOperation


urlpatterns = [
    path("missing/", idempotent()(raising(Http404))),
    path("mixed/", Mixed.as_view()),
    path("own/", idempotent()(raising(LookupError))),
    path("answered/", idempotent()(answered(raising(Http404)))),
    path("answered-own/", idempotent()(answered(raising(LookupError)))),
    path("bare/", bare),
    path("charged/", charged_and_failing),
    path("charged-own/", idempotent()(charged_and_failing)),
]

Send = Callable[..., Any]


@pytest.fixture
def send(user: User, settings: Settings) -> Send:
    """Return a function that posts, below a middleware that handles every exception and above our
    own.
    """
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE[:-1],
        f"{__name__}.Answering",
        settings.MIDDLEWARE[-1],
    ]
    client = Client()
    client.force_login(user)

    def send(url: str, *, key: str | None = KEY) -> Any:
        return client.post(f"/{url}/", headers={} if key is None else {"Idempotency-Key": key})

    return send


@pytest.mark.parametrize(("url", "replayed"), [("missing", 404), ("bare", 404), ("mixed", None)])
def test_it_answers_the_first_request_and_no_replay(
    send: Send, url: str, replayed: int | None
) -> None:
    """The response is as without a key; Django's own response is remembered, or nothing if that is
    a refusal.
    """
    assert [send(url, key=None).status_code, send(url).status_code, effects()] == [418, 418, 2]
    assert send(url).status_code == (replayed or 418)
    assert effects() == (2 if replayed else 3)


def test_an_exception_of_the_projects_own_has_failed(send: Send) -> None:
    """Its response reaches the client, and what the view wrote is rolled back; without a key the
    writes are kept.
    """
    assert [send("own", key=None).status_code, effects()] == [418, 1]
    assert [send("own").status_code, effects()] == [418, 1]
    assert IdempotencyRecord.objects.get().status != Status.COMPLETED
    assert [send("own").status_code, effects()] == [418, 1]


@pytest.mark.parametrize("url", ["answered", "answered-own"])
def test_what_answers_below_the_guard_is_remembered(send: Send, url: str) -> None:
    """Below the guard is a decorator under @idempotent()."""
    first, retry = send(url), send(url)
    assert (first.status_code, retry.status_code, retry.content) == (418, 418, first.content)
    assert retry["Idempotent-Replayed"] == "true"
    assert effects() == 1


def test_a_hook_that_adds_to_the_context_of_templates(send: Send, settings: Settings) -> None:
    """It gets what raises when it is rendered, and changes nothing: process_exception responds as
    without us.
    """
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE[:-1],
        f"{__name__}.Templating",
        settings.MIDDLEWARE[-1],
    ]
    assert (send("bare", key=None).status_code, send("bare").content) == (418, b"Http404")


@pytest.mark.parametrize("url", ["charged", "charged-own"])
def test_a_callback_that_fails_after_the_commit(send: Send, url: str) -> None:
    """All is committed, and the header says so, whatever is made of the exception."""
    first, retry = send(url), send(url)
    assert (first.status_code, first["Idempotency-Status"], effects()) == (418, "created", 1)
    assert (retry.status_code, retry["Idempotency-Status"], effects()) == (201, "replayed", 1)
