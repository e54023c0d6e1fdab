"""Views that end or replace the transaction below the guard, in every known way, and then respond
as usual.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import Error, connection, transaction
from django.db.transaction import TransactionManagementError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import idempotent
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect
from testproject.settings import DATABASE
from tests.stores.helpers import connection_id, kill


def write() -> None:
    Effect.objects.create(label="written", idempotency_key="", attempt=0)


def driver() -> Any:
    return connection.connection


def by_driver(*statements: str) -> Callable[[], None]:
    """Send statements past Django."""

    def lose() -> None:
        cursor = driver().cursor()
        for statement in statements:
            with suppress(Exception):  # each driver has its own error
                cursor.execute(statement)
        cursor.close()

    return lose


def by_cursor(*statements: Any) -> Callable[[], None]:
    """Send statements through Django's cursor, and swallow their errors."""

    def lose() -> None:
        for statement in statements:
            with suppress(Error), connection.cursor() as cursor:
                cursor.execute(statement)

    return lose


def in_a_block(lose: Callable[[], None]) -> Callable[[], None]:
    def in_a_block() -> None:
        with suppress(Error), transaction.atomic():
            lose()
            write()  # this fails where there is no transaction, and then marks ours

    return in_a_block


def reconnect() -> None:
    """Let the driver reconnect without notifying Django."""
    kill(connection_id())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyMySQL deprecates it
        driver().ping(True)


def autocommit() -> None:
    driver().autocommit(True)


def commit_and_autocommit() -> None:
    driver().commit()
    driver().autocommit = True


def composed(text: str) -> Callable[[], None]:
    """Send something that Django's cursor takes and that is not a string."""

    def lose() -> None:
        from psycopg import sql  # installed on PostgreSQL

        by_cursor(sql.SQL(text))()

    return lose


Ways = dict[str, Callable[[], None]]

EVERYWHERE: Ways = {
    "the driver's rollback()": lambda: driver().rollback(),
    "ROLLBACK by the driver": by_driver("ROLLBACK"),
    "ROLLBACK and BEGIN by the driver": by_driver("ROLLBACK", "BEGIN"),
    "ROLLBACK by the driver, in a block": in_a_block(by_driver("ROLLBACK")),
}
#: Ways that lose what the view has written.
ROLLED_BACK: dict[str, Ways] = {
    "sqlite": EVERYWHERE,
    "postgresql": {
        **EVERYWHERE,
        "ROLLBACK AND CHAIN": by_driver("ROLLBACK AND CHAIN"),
        "a composed ROLLBACK": composed("ROLLBACK"),
        "a string that is too strange to read": by_cursor(r"SELECT '\'; ROLLBACK"),
    },
    "mysql": {
        **EVERYWHERE,
        "a reconnect in place": reconnect,
    },
}
if DATABASE == "mariadb":  # MySQL prepares no ROLLBACK
    ROLLED_BACK["mysql"]["EXECUTE IMMEDIATE"] = by_cursor("EXECUTE IMMEDIATE 'ROLLBACK'")
ENDED_EVERYWHERE: Ways = {
    "the driver's commit()": lambda: driver().commit(),
    "COMMIT by the driver": by_driver("COMMIT"),
    "COMMIT and BEGIN by the driver": by_driver("COMMIT", "BEGIN"),
}
#: Ways that commit it too early.
COMMITTED: dict[str, Ways] = {
    "sqlite": {
        **ENDED_EVERYWHERE,
        "executescript()": lambda: driver().executescript("SELECT 1"),
        "executescript() that begins anew": lambda: driver().executescript("SELECT 1; BEGIN"),
    },
    "postgresql": {
        **ENDED_EVERYWHERE,
        "COMMIT AND CHAIN": by_driver("COMMIT AND CHAIN"),
        "a composed COMMIT": composed("COMMIT"),
        "commit() and autocommit": commit_and_autocommit,
    },
    "mysql": {
        **ENDED_EVERYWHERE,
        "prepared DDL": by_cursor(
            f"PREPARE s FROM 'ANALYZE TABLE {Effect._meta.db_table}'", "EXECUTE s"
        ),
        "the driver's autocommit()": autocommit,
        "BEGIN by the driver": by_driver("BEGIN"),
    },
}


def end(request: HttpRequest) -> dict[str, Any]:
    """Write, lose the write at the first attempt, continue if asked to, and respond."""
    asked, handle = json.loads(request.body), request.idempotency  # type: ignore[attr-defined]
    write()
    if handle.attempt == 1:
        if isinstance(asked["how"], list):
            by_driver(*asked["how"])()
        else:
            {**ROLLED_BACK[connection.vendor], **COMMITTED[connection.vendor]}[asked["how"]]()
    if asked["goes_on"]:
        with suppress(TransactionManagementError):  # Django raises this where it notices
            write()
    return {"attempt": handle.attempt}


def middleware_view(request: HttpRequest) -> HttpResponse:
    return JsonResponse(end(request), status=201)


@idempotent()
def decorated(request: HttpRequest) -> HttpResponse:
    return middleware_view(request)


class Mixed(IdempotentViewMixin, APIView):
    def post(self, request: Request) -> Response:
        return Response(end(request._request), status=201)


@idempotent()
@api_view(["POST"])
def above(request: Request) -> Response:
    return Response(end(request._request), status=201)


VIEWS: dict[str, Callable[..., Any]] = {
    "middleware": middleware_view,
    "decorated": decorated,
    "mixed": Mixed.as_view(),
    "above": above,
}
urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]
