"""W097: guarded views that lock rows, and whose key is optional."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views import View
from pytest_django import Settings
from rest_framework.decorators import api_view
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent
from django_idempotency.contrib.advice.surprises import check_locks
from django_idempotency.rest_framework import IdempotentViewMixin

from .conftest import hints


def locking(request: HttpRequest) -> HttpResponse:
    User.objects.select_for_update().get()
    return HttpResponse()


def careful(request: HttpRequest) -> HttpResponse:
    with transaction.atomic():
        return (
            locking(request)
            if request.GET
            else HttpResponse(User.objects.select_for_update().get())
        )


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Class(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(self.found())

    def found(self) -> Any:
        return User.objects.select_for_update().get()


@idempotent()
class Guarded(Class):
    pass


class Mixed(IdempotentViewMixin, APIView):
    def post(self, request: Any) -> HttpResponse:
        return HttpResponse(User.objects.select_for_update().get())


class Required(Mixed):
    idempotency = Policy(required=True)


def found(settings: Settings, view: Any) -> dict[str, str]:
    urlconf = ModuleType("urlconf")
    urlconf.urlpatterns = [path("a/", view), path("b/", view)]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = urlconf
    return hints(check_locks())


@pytest.mark.parametrize(
    "view",
    [
        idempotent()(locking),
        Guarded.as_view(),
        Mixed.as_view(),
        idempotent()(api_view(["POST"])(locking)),
    ],
    ids=["function", "class", "mixin", "api_view"],
)
def test_a_lock_without_a_transaction(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, view: Any
) -> None:
    """It is found in the view and in a method that it calls, once; not under ATOMIC_REQUESTS."""
    assert "with transaction.atomic():" in found(settings, view)["W097"]
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    assert found(settings, view) == {}


@pytest.mark.parametrize(
    "view",
    [
        idempotent()(careful),
        idempotent(required=True)(locking),
        idempotent()(plain),
        Required.as_view(),
    ],
    ids=["atomic", "required", "plain", "required mixin"],
)
def test_what_has_a_transaction_is_silent(settings: Settings, view: Any) -> None:
    assert found(settings, view) == {}
