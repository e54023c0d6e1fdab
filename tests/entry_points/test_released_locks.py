"""A view that releases a lock of the database after it has written: kept until the guard's COMMIT, or else refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import InternalError, connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent
from django_idempotency.errors import UnlockedTooEarly
from django_idempotency.rest_framework import IdempotentViewMixin
from tests.stores.helpers import elsewhere

from ..support.advisory_locks import RELEASE, TAKE, TRY, ask
from .conftest import Connect, effects
from .outcome_views import write

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.skipif("connection.vendor == 'sqlite'", reason="It has no such locks"),
]

#: Could others take the lock before the response was stored?
free: list[bool] = []


def allocate() -> None:
    ask(TAKE)
    with transaction.atomic():
        write()
    ask(RELEASE)
    free.append(elsewhere(lambda: ask(TRY)))


#: How a view releases the lock 7 in its `finally`.
RELEASES: dict[str, Callable[[Any], object]] = {
    "alone": lambda cursor: cursor.execute("SELECT pg_advisory_unlock(%s)", [7]),
    "many": lambda cursor: cursor.executemany("SELECT pg_advisory_unlock(%s)", iter([[7]])),
    "writing": lambda cursor: cursor.execute(
        "INSERT INTO payments_effect (label, idempotency_key, attempt, created)"
        " SELECT pg_advisory_unlock(7)::text, '', 0, now()"
    ),
}


def failing(request: HttpRequest, release: str) -> HttpResponse:
    ask(TAKE)
    with connection.cursor() as cursor:
        try:
            cursor.execute("SELECT 1 / 0")
        finally:
            RELEASES[release](cursor)
    return HttpResponse(status=201)


def repeating(request: HttpRequest) -> HttpResponse:
    ask(TAKE)
    with suppress(InternalError), transaction.atomic():
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
        finally:
            ask(RELEASE)
    ask(RELEASE)
    return HttpResponse(status=201)


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
    path("failing/<release>/", idempotent()(failing)),
    path("repeating/", idempotent()(repeating)),
    path("excluded/", transaction.non_atomic_requests(idempotent()(plain))),
    path("leased/", idempotent(guarantee="lease")(plain)),
    path("rest/", Rest.as_view()),
]


@pytest.fixture
def atomic_requests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", request.param)


@pytest.mark.parametrize(
    ("url", "atomic_requests", "moved"),
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
def test_a_lock_is_released_in_the_view(user: User, connect: Connect, url: str, moved: bool) -> None:
    """Kept or refused only where the guard has moved the COMMIT: the view's own block would have been committed by then."""
    send = connect(url, user)
    send.client.raise_request_exception = True
    free.clear()
    if moved and connection.vendor == "mysql":
        with pytest.raises(UnlockedTooEarly):
            send()
        assert effects() == 0
    else:
        assert (send().status_code, effects()) == (201, 1)
        assert free == [not moved]
    assert elsewhere(lambda: ask(TRY))
    assert send(key=None).status_code == 201


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="Elsewhere it is refused at any level")
def test_above_read_committed(user: User, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one to take the lock has begun to read before: refused."""
    from django.db.backends.postgresql.psycopg_any import IsolationLevel

    send = connect("/plain/", user)
    send.client.raise_request_exception = True
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "isolation_level", IsolationLevel.REPEATABLE_READ)
    connection.close()  # the next one is at this level
    try:
        with pytest.raises(UnlockedTooEarly):
            send()
    finally:
        connection.close()
    assert effects() == 0
    assert elsewhere(lambda: ask(TRY))


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="Elsewhere no statement aborts the transaction")
@pytest.mark.parametrize("release", RELEASES)
def test_after_a_failed_statement(user: User, connect: Connect, release: str) -> None:
    """The aborted transaction refuses the release, which follows the rollback: the connection may be kept for long."""
    send = connect(f"/failing/{release}/", user)
    send.client.raise_request_exception = True
    with pytest.raises(InternalError, match="aborted"):
        send()
    assert elsewhere(lambda: ask(TRY))
    assert effects() == 0, "nothing but the release is repeated"


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="Elsewhere no statement aborts the transaction")
def test_a_release_that_the_view_repeats(user: User, connect: Connect) -> None:
    """It is not repeated once more: a lock that was taken twice is still held."""
    ask(TAKE)
    send = connect("/repeating/", user)
    assert send().status_code == 201
    assert not elsewhere(lambda: ask(TRY))
    ask(RELEASE)
    assert elsewhere(lambda: ask(TRY))
