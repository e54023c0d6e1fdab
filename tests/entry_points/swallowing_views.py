"""Views that write, meet an error, catch it, and respond with success all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from rest_framework.decorators import api_view
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent, idempotent_function
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect

TABLE = Effect._meta.db_table


def write() -> Effect:
    return Effect.objects.create(label="written", idempotency_key="", attempt=0)


def orm(row: Effect) -> None:
    """The ORM marks the transaction, on every database."""
    with suppress(IntegrityError):
        Effect.objects.create(pk=row.pk, label="twice", idempotency_key="", attempt=0)


def no_database_error(row: Effect) -> None:
    """Django marks the transaction for any exception that leaves such a block."""
    with suppress(ValueError), transaction.atomic(savepoint=False):
        raise ValueError(row.pk)


def cursor(row: Effect) -> None:
    with suppress(DatabaseError), connection.cursor() as raw:
        raw.execute(f"INSERT INTO {TABLE} SELECT * FROM {TABLE} WHERE id = %s", [row.pk])


def driver(row: Effect) -> None:
    with suppress(Exception):  # each driver has its own error
        made = connection.connection.cursor()
        made.execute(f"INSERT INTO {TABLE} SELECT * FROM {TABLE} WHERE id = {row.pk}")


def copy(row: Effect) -> None:
    columns = "id, label, idempotency_key, attempt, created"
    with (
        suppress(Exception),
        connection.cursor() as raw,
        raw.copy(f"COPY {TABLE} ({columns}) FROM STDIN") as rows,
    ):
        rows.write_row((row.pk, "twice", "", 0, "2026-01-01"))


def statement_timeout(row: Effect) -> None:
    with suppress(OperationalError), connection.cursor() as raw:
        raw.execute("SET LOCAL statement_timeout = '10ms'")
        raw.execute("SELECT pg_sleep(5)")


def or_rollback_unless_caught() -> None:
    with connection.cursor() as raw:
        raw.execute(f"INSERT OR ROLLBACK INTO {TABLE} SELECT * FROM {TABLE}")


def or_rollback(row: Effect) -> None:
    with suppress(DatabaseError):
        or_rollback_unless_caught()


def or_rollback_in_a_block(row: Effect) -> None:
    """Catch the error around an atomic() block, as code does that expects the error."""
    with suppress(DatabaseError), transaction.atomic():
        or_rollback_unless_caught()


def raise_rollback(row: Effect) -> None:
    with suppress(DatabaseError), connection.cursor() as raw:
        raw.execute("CREATE TEMP TABLE IF NOT EXISTS never (a)")
        raw.execute(
            "CREATE TEMP TRIGGER IF NOT EXISTS no BEFORE INSERT ON never BEGIN SELECT "
            "RAISE(ROLLBACK, 'never'); END"
        )
        raw.execute("INSERT INTO never VALUES (1)")


def goes_on(row: Effect) -> None:
    """Write more after the database has rolled all back: that must not be committed at once."""
    or_rollback(row)
    with suppress(TransactionManagementError):
        write()


Ways = dict[str, tuple[Callable[[Effect], None], str | None]]

#: Way → how the writes are undone, and the error that Django has seen; `None`: it has seen none.
EVERYWHERE: Ways = {
    "the ORM": (orm, "IntegrityError"),
    "an exception through a block": (no_database_error, None),
}
BROKEN: dict[str, Ways] = {
    "sqlite": {
        **EVERYWHERE,
        "OR ROLLBACK": (or_rollback, "IntegrityError"),
        "OR ROLLBACK in a block": (or_rollback_in_a_block, "IntegrityError"),
        "RAISE(ROLLBACK)": (raise_rollback, "IntegrityError"),
        "OR ROLLBACK, and more": (goes_on, "IntegrityError"),
    },
    "mysql": EVERYWHERE,
    "postgresql": {
        **EVERYWHERE,
        "a cursor": (cursor, "IntegrityError"),
        "the driver": (driver, None),
        "COPY": (copy, None),
        "statement_timeout": (statement_timeout, "OperationalError"),
    },
}
#: Ways after which the database keeps what was written: there a statement that fails undoes only
#: itself.
HARMLESS: Ways = {"a cursor": (cursor, None), "the driver": (driver, None)}


def in_a_savepoint(row: Effect) -> None:
    with suppress(IntegrityError), transaction.atomic():
        Effect.objects.create(pk=row.pk, label="twice", idempotency_key="", attempt=0)


def dry_run(row: Effect) -> None:
    transaction.set_rollback(True)


def dry_run_of_a_block(row: Effect) -> None:
    """Undo a block by its mark; then an error marks all."""
    with transaction.atomic():
        write()
        transaction.set_rollback(True)
    orm(row)


@idempotent_function(key="row", key_prefix="fails inside a view")
def fails(row: int) -> None:
    raise LookupError


def guarded_call(row: Effect) -> None:
    """Let a guarded call roll its own part back; then an error marks all."""
    with suppress(LookupError):
        fails(row.pk)
    orm(row)


OTHERS = {
    "a savepoint": in_a_savepoint,
    "dry run": dry_run,
    "undone block": dry_run_of_a_block,
    "guarded call": guarded_call,
}


#: What was asked of these views in one test: only the first request meets an error. Its record may
#: be rolled back with it, and count no attempt.
ASKED: list[str] = []


def end(request: HttpRequest) -> tuple[dict[str, Any], int]:
    asked = json.loads(request.body)
    how = asked["how"]
    row = write()
    ASKED.append(how)
    if len(ASKED) == 1:
        ways = {**BROKEN[connection.vendor], **HARMLESS}
        if how in ways:
            ways[how][0](row)
        else:
            OTHERS[how](row)
    if asked.get("drop"):
        request.idempotency.drop()  # type: ignore[attr-defined]
    return {"id": row.pk}, asked.get("status", 201)


def middleware_view(request: HttpRequest) -> HttpResponse:
    body, status = end(request)
    return JsonResponse(body, status=status)


@idempotent()
def decorated(request: HttpRequest) -> HttpResponse:
    return middleware_view(request)


@idempotent(guarantee="lease")
def leased(request: HttpRequest) -> HttpResponse:
    return middleware_view(request)


class Mixed(IdempotentViewMixin, APIView):
    def post(self, request: Request) -> Response:
        body, status = end(request._request)
        return Response(body, status=status)


class LeasedMixed(Mixed):
    idempotency = Policy(guarantee="lease")


class Handled(Mixed):
    """REST framework marks the transaction of ATOMIC_REQUESTS when it handles this."""

    def post(self, request: Request) -> Response:
        write()
        error = APIException("declined")
        error.status_code = 422
        raise error


@idempotent()
@api_view(["POST"])
def above(request: Request) -> Response:
    return Response(*end(request._request))


@api_view(["POST"])
@idempotent()
def below(request: Request) -> Response:
    return Response(*end(request._request))


ATOMIC: dict[str, Callable[..., Any]] = {
    "middleware": middleware_view,
    "decorated": decorated,
    "mixed": Mixed.as_view(),
    "above": above,
    "below": below,
}
LEASED: dict[str, Callable[..., Any]] = {"leased": leased, "leased-mixed": LeasedMixed.as_view()}
urlpatterns = [
    path(f"{name}/", view)
    for name, view in {**ATOMIC, **LEASED, "handled": Handled.as_view()}.items()
]
