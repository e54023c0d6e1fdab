"""Middlewares that turn exceptions into responses outside of a view's guard."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.http import HttpRequest, HttpResponse
from django.urls import path
from pytest_django import Settings
from rest_framework.views import APIView

from django_idempotency import idempotency_exempt, idempotent
from django_idempotency.contrib.advice.surprises import check_exceptions
from django_idempotency.rest_framework import IdempotentViewMixin

from .conftest import Configure, hints
from .test_middleware import Apologetic, Counting

OURS = "django_idempotency.middleware.IdempotencyMiddleware"
ANSWERING, OBSERVING = (f"{cls.__module__}.{cls.__qualname__}" for cls in (Apologetic, Counting))


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def bare(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Mixed(IdempotentViewMixin, APIView):
    def post(self, request: Any) -> None: ...


class Exempt(IdempotentViewMixin, APIView):
    @idempotency_exempt
    def post(self, request: Any) -> None: ...


class Reads(IdempotentViewMixin, APIView):
    def get(self, request: Any) -> None: ...


GUARDED = [idempotent()(plain), Mixed.as_view()]
UNGUARDED = [idempotency_exempt(bare), Exempt.as_view(), Reads.as_view()]


def found(settings: Settings, middleware: list[str], *views: Any) -> list[CheckMessage]:
    settings.MIDDLEWARE = middleware
    urlconf = ModuleType("urlconf")
    urlconf.urlpatterns = [path(f"{number}/", view) for number, view in enumerate(views)]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = urlconf
    return check_exceptions()


@pytest.mark.parametrize("view", GUARDED)
@pytest.mark.parametrize("middleware", [[ANSWERING], [OBSERVING, ANSWERING, OURS]])
def test_a_middleware_that_may_answer(settings: Settings, middleware: list[str], view: Any) -> None:
    """Such a middleware is named, with a view and the number of views; the hint says where to
    respond instead.
    """
    messages = found(settings, middleware, *UNGUARDED, view, view)
    assert "below @idempotent()" in hints(messages)["W085"]
    (message,) = messages
    assert message.msg.startswith(ANSWERING)
    assert "(/3/)" in message.msg
    assert " more" not in message.msg  # one view at two routes
    assert " and 1 more:" in found(settings, middleware, *GUARDED)[0].msg


def test_each_middleware_is_named(settings: Settings) -> None:
    """Each middleware gets a message of its own."""
    assert len(found(settings, [ANSWERING, f"{__name__}.Another"], *GUARDED)) == 2


class Another(Apologetic):
    """A second middleware."""


@pytest.mark.parametrize(
    ("middleware", "views"),
    [
        ([ANSWERING], [plain, *UNGUARDED]),  # without ours nothing is guarded
        ([ANSWERING, OURS], UNGUARDED),
        ([OBSERVING, OURS], GUARDED),
        ([OURS, "no.such.Middleware"], GUARDED),
        ([], GUARDED),
    ],
)
def test_what_needs_nothing_is_silent(
    settings: Settings, middleware: list[str], views: list[Any]
) -> None:
    """A middleware that only observes is silent, and so are views that nothing guards."""
    assert found(settings, middleware, *views) == []


@pytest.mark.parametrize("middleware", [[ANSWERING, OURS], [OURS, ANSWERING]])
def test_a_view_that_only_the_middleware_guards(settings: Settings, middleware: list[str]) -> None:
    """It is named, wherever the other middleware stands, and not if the project has exempted it."""
    (message,) = found(settings, middleware, Exempt.as_view(), plain)
    assert (message.id, "plain (/1/):" in message.msg) == ("django_idempotency.W085", True)
    settings.IDEMPOTENCY = {"EXEMPT": ["path:/1/"]}
    assert found(settings, middleware, Exempt.as_view(), plain) == []


def test_settings_come_first(settings: Settings, configure: Configure) -> None:
    """Broken settings are reported alone, to be fixed first."""
    configure(TTL="a day")
    assert found(settings, [ANSWERING], *GUARDED) == []
