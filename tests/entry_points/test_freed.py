"""A request, with its uploads, is freed as early as without us: nothing of ours closes a circle
around it.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import path
from pytest_django import Settings

from django_idempotency import idempotent

from .conftest import KEY

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

JSON = "application/json"  # a form refers to its upload handlers, and those to the request

seen: list[weakref.ref[HttpRequest]] = []


def signed_in(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Django's own middlewares refer to a request from its session and its messages: here there are
    none.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        seen.append(weakref.ref(request))
        request.user = User.objects.get()
        return get_response(request)

    return middleware


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse("charged", status=201)


urlpatterns = [path("plain/", plain), path("decorated/", idempotent(plain))]


@pytest.mark.parametrize("key", [KEY, None], ids=["keyed", "keyless"])
@pytest.mark.parametrize("url", ["/plain/", "/decorated/"])
def test_a_request_is_freed_with_its_response(
    user: User, settings: Settings, url: str, key: str | None
) -> None:
    """The first request and its replay, without a garbage collection."""
    if connection.vendor == "mysql":
        pytest.skip(
            "it raises for a key that exists, and Django's database errors keep their frames alive"
        )
    settings.MIDDLEWARE = [
        f"{__name__}.signed_in",
        "django_idempotency.middleware.IdempotencyMiddleware",
    ]
    handler: Any = WSGIHandler()
    seen.clear()
    statuses: list[str] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            headers = {} if key is None else {"Idempotency-Key": key}
            response = handler(
                RequestFactory().post(url, b"{}", JSON, headers=headers).environ,
                lambda *said: statuses.append(said[0]),
            )
            response.close()
            del response
        assert (statuses, [each() for each in seen]) == (["201 Created"] * 2, [None, None])
    finally:
        gc.enable()
