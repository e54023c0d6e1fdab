"""W096: guarded views that look as if they mint secrets."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import path
from pytest_django import Settings
from rest_framework.authtoken.views import ObtainAuthToken
from rest_framework.viewsets import ModelViewSet

from django_idempotency import idempotency_exempt, idempotent
from django_idempotency.contrib.advice.surprises import check_secrets
from django_idempotency.rest_framework import IdempotentViewMixin

from .conftest import hints


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def rotate_api_key(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Login(IdempotentViewMixin, ObtainAuthToken):
    pass


class Tokens(ModelViewSet):
    """Of REST framework: what it creates, it returns."""


guarded = idempotent()(plain)


def found(settings: Settings, *patterns: Any) -> list[str]:
    urlconf = ModuleType("urlconf")
    urlconf.urlpatterns = patterns  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = urlconf
    messages = check_secrets()
    assert {message.id for message in messages} <= {"django_idempotency.W096"}
    return [message.msg for message in messages]


@pytest.mark.parametrize(
    "pattern",
    [
        path("api-keys/", guarded),
        path("users/<int:pk>/recovery-codes/", guarded),
        path("oauth/token", guarded),
        path("a/", guarded, name="access_tokens"),
        path("b/", idempotent()(rotate_api_key)),
        path("c/", Login.as_view()),
    ],
)
def test_named(settings: Settings, pattern: Any) -> None:
    assert len(found(settings, pattern)) == 1
    assert "store_body=False" in hints(check_secrets())["W096"]


@pytest.mark.parametrize(
    "pattern",
    [
        path("charges/", guarded),
        path("secretaries/", guarded),
        path("tokenize-nothing/", plain),  # not guarded
        path("token/", idempotency_exempt(plain)),
        path("token/", idempotent(store_body=False)(plain)),
        path("token/", idempotent(store_body=True)(plain)),
        path("reset/<str:token>/", guarded),  # it takes one
    ],
)
def test_not_named(settings: Settings, pattern: Any) -> None:
    assert found(settings, pattern) == []


def test_by_default(settings: Settings) -> None:
    """Nothing is stored by default, so nothing is said."""
    settings.IDEMPOTENCY = {"STORE_BODY": False}
    assert found(settings, path("token/", guarded)) == []


def test_under_the_middleware(settings: Settings) -> None:
    """It also guards forms that take secrets, so there only views that return one are named."""
    settings.MIDDLEWARE = ["django_idempotency.middleware.IdempotencyMiddleware"]
    assert found(settings, path("token/change/", plain)) == []
    (message,) = found(settings, path("token/", ObtainAuthToken.as_view()))
    assert "ObtainAuthToken" in message
    creating, one = (
        path("tokens/", Tokens.as_view({"post": "create"})),
        Tokens.as_view({"patch": "partial_update"}),
    )
    (message,) = found(settings, creating, path("tokens/<pk>/", one))
    assert "Tokens (/tokens/)" in message
