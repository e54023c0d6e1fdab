"""W134: views that an atomic guard would break, since they have a durable block."""

from __future__ import annotations

import tokenize
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views import View
from ninja import NinjaAPI
from pytest_django import Settings
from rest_framework.decorators import action, api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from django_idempotency import idempotent
from django_idempotency.checks.durable import check_durable
from django_idempotency.rest_framework import IdempotentViewMixin

from .conftest import hints

channel: Any = None


def inside(request: HttpRequest) -> HttpResponse:
    with transaction.atomic(durable=True):
        return HttpResponse()


@transaction.atomic(durable=True)
def decorated(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@idempotent()
@transaction.atomic(durable=True)
def below(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@transaction.atomic(durable=True)
@idempotent()
def above(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@idempotent()
@api_view(["POST"])
def charge(request: Request) -> Response:
    with transaction.atomic(using=None, durable=True):
        return Response()


@idempotent()
def around(request: HttpRequest) -> HttpResponse:
    """Neither text nor another function's durable= is a block: atomic(durable=True)."""
    channel.queue_declare(queue="orders", durable=True)
    return HttpResponse()


@idempotent()
def elsewhere(request: HttpRequest) -> HttpResponse:
    with transaction.atomic(using="other", durable=True), transaction.atomic("other", durable=True):
        return HttpResponse()


@idempotent()
def anywhere(request: HttpRequest) -> HttpResponse:
    with transaction.atomic(using=router.db_for_write(User), durable=True):
        return HttpResponse()


class Shop(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return inside(request)

    @transaction.atomic(durable=True)
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class Query(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        page = """a string whose second line
is not indented"""
        with transaction.atomic(durable=True):
            return HttpResponse(page)


class Charges(IdempotentViewMixin, ViewSet):
    def create(self, request: Request) -> Response:
        with transaction.atomic(durable=False):
            return Response()

    @action(detail=False, methods=["post"])
    def capture(self, request: Request) -> Response:
        with transaction.atomic(durable=True):
            return Response()


def found(settings: Settings, view: Any) -> list[str]:
    urlconf = ModuleType("urlconf")
    urlconf.urlpatterns = [path("a/", view)]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = urlconf
    messages = check_durable()
    assert all("EXEMPT" in hint for hint in hints(messages).values())
    assert hints(messages).keys() <= {"W134"}
    return [message.msg for message in messages]


@pytest.mark.parametrize(
    ("view", "name"),
    [
        (idempotent()(inside), "test_durable.inside (/a/)"),
        (idempotent()(Shop).as_view(), "Shop.post (/a/)"),
        (idempotent()(Query).as_view(), "Query.post (/a/)"),
        (Charges.as_view({"post": "capture"}), "Charges.capture (/a/)"),
        (charge, "test_durable.charge (/a/)"),
        (below, "test_durable.below (/a/)"),
        (idempotent()(decorated), "test_durable.decorated (/a/)"),
    ],
)
def test_a_durable_block(settings: Settings, view: Any, name: str) -> None:
    """Each keyed request to it would raise, so the check says it first, and names the handler."""
    (message,) = found(settings, view)
    assert name in message


@pytest.mark.parametrize(
    "view",
    [
        around,
        above,
        elsewhere,
        anywhere,
        idempotent(guarantee="lease")(inside),
        Charges.as_view({"post": "create"}),
        idempotent()(len),
    ],
    ids=["only-text", "above", "elsewhere", "anywhere", "lease", "not-true", "no-source"],
)
def test_none(settings: Settings, view: Any) -> None:
    """A view is silent that has no such block, or no atomic guard around it."""
    assert found(settings, view) == []


def test_under_the_middleware(settings: Settings) -> None:
    """It guards views that cannot be edited, so they are read, too."""
    settings.MIDDLEWARE = ["django_idempotency.middleware.IdempotencyMiddleware"]
    assert len(found(settings, inside)) == 1
    settings.MIDDLEWARE = []
    assert found(settings, inside) == []
    settings.MIDDLEWARE = ["django_idempotency.middleware.IdempotencyMiddleware"]
    settings.IDEMPOTENCY = {"EXEMPT": ["path:/a/"]}
    assert found(settings, inside) == []


def test_an_operation(settings: Settings) -> None:
    """The function of a django-ninja operation is read."""
    api = NinjaAPI(urls_namespace="durable")

    @api.post("/charges")
    @idempotent()
    def operation(request: HttpRequest) -> None:
        with transaction.atomic(durable=True):
            pass

    (message,) = found(settings, api.urls)
    assert "operation (/a/charges)" in message


@pytest.mark.parametrize("error", [tokenize.TokenError, OSError, RecursionError, ValueError])
def test_a_source_that_cannot_be_read(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Nothing is known of it, and the other checks go on."""

    def unreadable(function: Any) -> str:
        raise error

    monkeypatch.setattr("inspect.getsource", unreadable)
    assert found(settings, idempotent()(inside)) == []
