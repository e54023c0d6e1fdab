"""A middleware resends one request through the view, on a deadlock, a conflict or a 503: guarded
each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import idempotent
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect

from .conftest import CHARGE, KEY, effects
from .outcome_views import write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


def status(request: Any) -> int:
    """Do what is asked for, at the first attempt only."""
    if request.idempotency.attempt > 1:
        return 201
    if request.headers["How"] == "raise":
        raise LookupError
    return int(request.headers["How"])


def work(request: Any) -> int:
    write()
    return status(request)


def plain(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=work(request))


@idempotent(guarantee="lease")
async def leased(request: HttpRequest) -> HttpResponse:
    await Effect.objects.acreate(label="written", idempotency_key="", attempt=0)
    return JsonResponse({}, status=status(request))


class Adapted(APIView):
    def post(self, request: Request) -> Response:
        return Response({}, status=work(request))


class Mixed(IdempotentViewMixin, Adapted):
    pass


def once_more(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    def send(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        return get_response(request) if response.status_code >= 409 else response

    return send


def twice(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    def send(request: HttpRequest) -> HttpResponse:
        get_response(request)
        return get_response(request)

    return send


urlpatterns = [
    path("decorated/", idempotent()(plain)),
    path("plain/", plain),
    path("mixed/", Mixed.as_view()),
    path("adapted/", Adapted.as_view()),
    path("leased/", leased),
]


every_view = pytest.mark.parametrize("url", ["decorated", "plain", "mixed", "adapted", "leased"])
both_clients = pytest.mark.parametrize("client", [Client, AsyncClient])


def sending(client: Any, user: User, settings: Any, middleware: str) -> Callable[[str, str], Any]:
    """Put a middleware around ours, and return a function that sends the user's request to a
    view.
    """
    *others, ours = settings.MIDDLEWARE
    settings.MIDDLEWARE = [*others, f"{__name__}.{middleware}", ours]
    sender = client(raise_request_exception=False)
    sender.force_login(user)
    post = async_to_sync(sender.post) if client is AsyncClient else sender.post

    def send(url: str, how: str) -> Any:
        headers = {"Idempotency-Key": KEY, "How": how}
        return post(f"/{url}/", CHARGE, content_type="application/json", headers=headers)

    return send


@pytest.mark.parametrize("how", ["503", "raise", "409"])
@every_view
@both_clients
def test_the_second_time_is_guarded_too(
    user: User, settings: Any, client: Any, url: str, how: str
) -> None:
    """What the second run wrote has a record: the client's own retry writes nothing."""
    send = sending(client, user, settings, "once_more")
    first, retry = send(url, how), send(url, how)
    assert (first.status_code, retry.status_code, retry["Idempotent-Replayed"]) == (
        201,
        201,
        "true",
    )
    assert "Idempotent-Replayed" not in first
    # Neither a lease nor a refusal is rolled back.
    assert effects() == (2 if url == "leased" or how == "409" else 1)
    assert IdempotencyRecord.objects.get().attempt == 2


@every_view
@both_clients
def test_the_second_time_of_a_success_is_a_replay(
    user: User, settings: Any, client: Any, url: str
) -> None:
    """The work of a request that got its response does not run again."""
    answer = sending(client, user, settings, "twice")(url, "201")
    assert (answer.status_code, answer["Idempotent-Replayed"], effects()) == (201, "true", 1)
