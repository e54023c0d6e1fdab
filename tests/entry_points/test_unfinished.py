"""The view has returned and its transactions are over, yet there is no response: a COMMIT or the
rendering failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.core.handlers.base import BaseHandler
from django.db import IntegrityError, connection, connections
from django.db.utils import ConnectionHandler
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.response import SimpleTemplateResponse
from django.test import RequestFactory
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)


def write() -> None:
    Effect.objects.create(label="written", idempotency_key="", attempt=0)


def write_in_vain() -> None:
    write()
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO child (parent) VALUES (4711)")  # refused at COMMIT


class Broken(SimpleTemplateResponse):
    def render(self) -> Any:
        raise LookupError("a template")


@idempotent(guarantee="lease")
def leased(request: HttpRequest) -> HttpResponse:
    write()
    return Broken("x")


@idempotent()
def atomic(request: HttpRequest) -> HttpResponse:
    write()
    return Broken("x")


@idempotent()
def paid(request: HttpRequest) -> HttpResponse:
    write()
    return JsonResponse({"id": 1}, status=201)


@idempotent()
def refused(request: HttpRequest) -> HttpResponse:
    write_in_vain()
    return JsonResponse({"id": 1}, status=201)


class Leased(IdempotentViewMixin, APIView):
    idempotency = Policy(guarantee="lease")

    def post(self, request: Any) -> Response | None:
        write()
        return Response({"id": object()}, status=201)  # TypeError when DRF renders it


class Atomic(Leased):
    idempotency = Policy()


class Forgetful(Leased):
    def post(self, request: Any) -> None:
        write()  # and no `return`: DRF's finalize_response asserts that there is a response


class Paid(Atomic):
    def post(self, request: Any) -> Response:
        write()
        return Response({"id": 1}, status=201)


class Refused(Atomic):
    def post(self, request: Any) -> Response:
        write_in_vain()
        return Response({"id": 1}, status=201)


def send(view: Any, user: User) -> Any:
    """Return the response, or what was raised in its place."""
    headers = {"Idempotency-Key": "k" * 30}
    request: Any = RequestFactory().post(
        "/x/", {"a": "1"}, content_type="application/json", headers=headers
    )
    request.user = request._force_auth_user = user
    request._dont_enforce_csrf_checks = True
    request.resolver_match = SimpleNamespace(func=view)  # as Django does
    try:
        return BaseHandler().make_view_atomic(view)(request)
    except (LookupError, TypeError, AssertionError, IntegrityError) as error:
        return error


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch, db: None) -> Iterator[Any]:
    """Add a database with ATOMIC_REQUESTS, beside the one that holds the records."""
    sqlite: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    handler = ConnectionHandler({"default": sqlite, "other": {**sqlite, "ATOMIC_REQUESTS": True}})
    monkeypatch.setitem(connections.settings, "other", handler.settings["other"])
    made: Any = connections["other"]

    def ensure_connection() -> None:  # pytest-django allows only those that it knows
        if made.connection is None:
            made.connect()

    made.ensure_connection = ensure_connection
    yield made
    made._close()  # close() leaves an in-memory database open
    del connections["other"]


@pytest.fixture
def deferred(db: None) -> Iterator[None]:
    """Make a constraint that is checked only at COMMIT."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE parent (id integer PRIMARY KEY)")
        cursor.execute(
            "CREATE TABLE child (parent integer REFERENCES parent (id) DEFERRABLE "
            "INITIALLY DEFERRED)"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE child")
        cursor.execute("DROP TABLE parent")


@pytest.mark.parametrize(
    "view", [leased, Leased.as_view(), Forgetful.as_view()], ids=["decorator", "mixin", "no answer"]
)
def test_a_leased_response_that_cannot_be_rendered(
    user: User, atomic_requests: None, view: Any
) -> None:
    """The key is free again."""
    assert isinstance(error := send(view, user), Exception)
    assert IdempotencyRecord.objects.get().status == Status.FREE, error


@pytest.mark.parametrize("view", [atomic, Atomic.as_view()], ids=["decorator", "mixin"])
def test_an_atomic_response_that_cannot_be_rendered(user: User, other: Any, view: Any) -> None:
    """The guard ends, even while a log record or Sentry keeps the exception."""
    error = send(view, user)
    assert isinstance(error, Exception)
    assert not connection.in_atomic_block
    assert Effect.objects.count() == 0


@pytest.mark.skipif(connection.vendor == "mysql", reason="MySQL and MariaDB defer no constraint")
@pytest.mark.parametrize("view", [refused, Refused.as_view()], ids=["decorator", "mixin"])
def test_the_commit_of_the_records_database_fails(  # noqa: PLR0917 - fixtures
    user: User,
    atomic_requests: None,
    other: Any,
    deferred: None,
    view: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A response whose writes were refused is not remembered, and the other database, whose COMMIT
    comes after it, rolls back.
    """
    monkeypatch.setattr(other, "commit", Mock(side_effect=AssertionError))
    for _ in range(2):
        assert isinstance(send(view, user), IntegrityError)
        assert (Effect.objects.count(), IdempotencyRecord.objects.count()) == (0, 0)


@pytest.mark.parametrize("view", [paid, Paid.as_view()], ids=["decorator", "mixin"])
def test_the_commit_of_another_database_fails(
    user: User, atomic_requests: None, other: Any, view: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`atomic` covers the record's database and no other. Its COMMIT comes first, so the response
    is remembered with what was written there.
    """
    with monkeypatch.context() as patch:
        patch.setattr(other, "commit", Mock(side_effect=IntegrityError))
        assert isinstance(send(view, user), IntegrityError)
    assert Effect.objects.count() == 1
    assert send(view, user)["Idempotent-Replayed"] == "true"
    assert Effect.objects.count() == 1
