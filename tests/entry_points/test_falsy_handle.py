"""`if request.idempotency:` in a view that has a guard, and runs without a key: it is false, and
never missing.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path
from django.views import View
from pytest_django import Settings
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import idempotency_exempt, idempotent
from django_idempotency.http.exchange import HEADER
from django_idempotency.rest_framework import IdempotentViewMixin

from .conftest import KEY

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

OURS = "django_idempotency.middleware.IdempotencyMiddleware"


def plain(request: Any) -> HttpResponse:
    return JsonResponse({"keyed": bool(request.idempotency)}, status=201)


def bare(request: Any) -> HttpResponse:
    return plain(request)


@idempotency_exempt
def exempt(request: Any) -> HttpResponse:
    return plain(request)


@idempotent()
class Decorated(View):
    @idempotency_exempt
    def put(self, request: HttpRequest) -> HttpResponse:
        return plain(request)

    def post(self, request: HttpRequest) -> HttpResponse:
        return plain(request)

    def get(self, request: HttpRequest) -> HttpResponse:
        return plain(request)


class Mixed(IdempotentViewMixin, APIView):
    def post(self, request: Request) -> Response:
        return Response({"keyed": bool(request.idempotency)}, status=201)  # type: ignore[attr-defined]

    def get(self, request: Request) -> Response:
        return self.post(request)

    @idempotency_exempt
    def put(self, request: Request) -> Response:
        return self.post(request)


@idempotent()
@api_view(["POST", "GET"])
def above(request: Request) -> Response:
    return Response({"keyed": bool(request.idempotency)}, status=201)  # type: ignore[attr-defined]


urlpatterns = [
    path("function/", idempotent()(plain)),
    path("class/", Decorated.as_view()),
    path("mixed/", Mixed.as_view()),
    path("above/", above),
    path("bare/", bare),
    path("exempt/", exempt),
]

#: Where a view is without a guard of its own.
BARE = ("bare", "exempt")


@pytest.mark.parametrize("middleware", [True, False])
@pytest.mark.parametrize("url", ["function", "class", "mixed", "above", *BARE])
@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("method", ["POST", "GET", "PUT"])
def test_it_is_there(
    settings: Settings, user: User, *, middleware: bool, url: str, key: str | None, method: str
) -> None:
    """A guarded view has it, with a key and without, for each method; a view without a guard only
    under the middleware.
    """
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if name != OURS] + [
        OURS
    ] * middleware
    client = Client()
    client.force_login(user)
    if url in BARE and not middleware:
        with pytest.raises(AttributeError, match="idempotency"):
            client.generic(method, f"/{url}/")
        return
    headers = {} if key is None else {"Idempotency-Key": key}
    response = client.generic(method, f"/{url}/", headers=headers)
    if response.status_code == 405:
        return
    is_exempt = url == "exempt" or (method == "PUT" and url in ("class", "mixed"))
    keyed = key is not None and method != "GET"
    assert response.json() == {"keyed": keyed and not is_exempt}
    if keyed:
        assert response[HEADER] == ("unguarded" if is_exempt else "created")
