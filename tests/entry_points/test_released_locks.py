"""A view that releases a lock of the database after it has written: refused where the guard has moved its COMMIT."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent
from django_idempotency.errors import UnlockedTooEarly
from django_idempotency.rest_framework import IdempotentViewMixin

from .conftest import Connect, effects
from .outcome_views import write

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.skipif("connection.vendor == 'sqlite'", reason="It has no such locks"),
]

LOCKS = {
    "postgresql": ("SELECT pg_advisory_lock(7)", "SELECT pg_advisory_unlock(7)"),
    "mysql": ("SELECT GET_LOCK('seven', 1)", "SELECT RELEASE_LOCK('seven')"),
}


def allocate() -> None:
    with connection.cursor() as cursor:
        take, release = LOCKS[connection.vendor]
        cursor.execute(take)
        with transaction.atomic():
            write()
        cursor.execute(release)


def plain(request: HttpRequest) -> HttpResponse:
    allocate()
    return HttpResponse(status=201)


class Rest(IdempotentViewMixin, APIView):
    idempotency = Policy()

    def post(self, request: Any) -> Response:
        allocate()
        return Response({}, status=201)


urlpatterns = [
    path("plain/", idempotent()(plain)),
    path("middleware/plain/", plain),
    path("excluded/", transaction.non_atomic_requests(idempotent()(plain))),
    path("leased/", idempotent(guarantee="lease")(plain)),
    path("rest/", Rest.as_view()),
]


@pytest.fixture
def atomic_requests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", request.param)


@pytest.mark.parametrize(
    ("url", "atomic_requests", "refused"),
    [
        ("/plain/", False, True),
        ("/middleware/plain/", False, True),
        ("/rest/", False, True),
        ("/leased/", False, False),
        ("/plain/", True, False),  # without us it would be in a transaction, too
        ("/middleware/plain/", True, False),
        ("/rest/", True, False),
        ("/excluded/", True, True),
    ],
    indirect=["atomic_requests"],
)
@pytest.mark.usefixtures("atomic_requests")
def test_a_lock_is_released_in_the_view(user: User, connect: Connect, url: str, refused: bool) -> None:
    """Refused, and rolled back, only where the view's own block would have been committed by then."""
    send = connect(url, user)
    send.client.raise_request_exception = True
    if refused:
        with pytest.raises(UnlockedTooEarly):
            send()
    else:
        assert send().status_code == 201
    assert effects() == int(not refused)
    assert send(key=None).status_code == 201
