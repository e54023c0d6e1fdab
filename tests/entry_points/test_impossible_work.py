"""What an atomic guard makes impossible, and the view's code handles: an eager Celery task fails,
and nobody sees it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent
from django_idempotency.errors import DurableInsideGuard
from django_idempotency.rest_framework import IdempotentViewMixin

from .conftest import Connect, effects
from .outcome_views import write

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.any_database,
]


def export() -> None:
    """Write, and let a task run at once: its engine keeps the task's error as the task's result."""
    write()
    with suppress(Exception), transaction.atomic(durable=True):
        write()


def plain(request: HttpRequest) -> HttpResponse:
    export()
    return HttpResponse(status=202)


class Rest(IdempotentViewMixin, APIView):
    idempotency = Policy()

    def post(self, request: Any) -> Response:
        export()
        return Response({}, status=202)


urlpatterns = [
    path("plain/", idempotent()(plain)),
    path("middleware/plain/", plain),
    path("leased/", idempotent(guarantee="lease")(plain)),
    path("rest/", Rest.as_view()),
]


@pytest.mark.parametrize("url", ["/plain/", "/middleware/plain/", "/rest/"])
def test_a_swallowed_refusal(user: User, connect: Connect, url: str) -> None:
    """The view's success is not stored, and its writes are undone: the client gets 500, and a retry
    runs again.
    """
    send = connect(url, user)
    assert [send().status_code, send().status_code, effects()] == [500, 500, 0]
    send.client.raise_request_exception = True
    with pytest.raises(DurableInsideGuard, match='guarantee="lease"'):
        send()


def test_where_it_is_possible(user: User, connect: Connect) -> None:
    """Under a lease the task commits, and so does a request without a key."""
    assert (connect("/leased/", user)().status_code, effects()) == (202, 2)
    assert (connect("/plain/", user)(key=None).status_code, effects()) == (202, 4)
