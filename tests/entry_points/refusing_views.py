"""Views that write, or write nothing, in each way that there is, and then refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.contrib.auth.decorators import login_required, permission_required, user_passes_test
from django.contrib.auth.mixins import LoginRequiredMixin
from django.db import IntegrityError, connection, transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views import View
from django.views.decorators.http import require_GET
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent
from django_idempotency.contrib.limits import Suspect
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect

TABLE = Effect._meta.db_table


def create() -> None:
    Effect.objects.create(label="written", idempotency_key="", attempt=0)


def update_nothing() -> None:
    Effect.objects.filter(label="no such row").update(label="other")


def read() -> None:
    Effect.objects.filter(label="no such row").exists()


def lock() -> None:
    with transaction.atomic():
        list(Effect.objects.select_for_update().all())


def undone() -> None:
    with transaction.atomic():
        read()
        transaction.set_rollback(True)


def by_driver() -> None:
    """Write past Django."""
    values = "'by driver', '', 0, CURRENT_TIMESTAMP"
    statement = f"INSERT INTO {TABLE} (label, idempotency_key, attempt, created) VALUES ({values})"
    connection.connection.cursor().execute(statement)


def by_function() -> None:
    """Write on PostgreSQL's server, by a statement whose text says nothing of that."""
    with connection.cursor() as cursor:
        values = "'by function', '', 0, now()"
        body = f"INSERT INTO {TABLE} (label, idempotency_key, attempt, created) VALUES ({values})"
        cursor.execute(f"DO $do$ BEGIN {body}; END $do$")


def table() -> None:
    """Change the schema."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE made_by_a_refusal (a int)")
        cursor.execute("DROP TABLE made_by_a_refusal")


def large_object() -> None:
    """Write in a catalog, whose lock PostgreSQL gives back at once."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT lo_unlink(lo_create(0)), lo_create(0)")


NOTHING: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "a read": read,
    "a lock": lock,
    "no row": update_nothing,
    "an undone block": undone,
}
WRITES: dict[str, Callable[[], None]] = {"the ORM": create, "the driver": by_driver}
if connection.vendor == "postgresql":
    WRITES["a function"] = by_function
    WRITES["a large object"] = large_object
if connection.vendor != "mysql":  # where it ends the transaction
    WRITES["a table"] = table


def refuse(request: HttpRequest) -> HttpResponse:
    asked = json.loads(request.body)
    if not asked.get("pays"):
        {**NOTHING, **WRITES}[asked["how"]]()
        return JsonResponse({}, status=asked["status"], headers=asked.get("headers", {}))
    create()
    return JsonResponse({}, status=201)


written = idempotent(keep="written")(refuse)
by_table = idempotent()(refuse)
leased = idempotent(guarantee="lease")(refuse)
selected = idempotent(key="body.order")(refuse)
selected_kept = idempotent(key="body.order", keep={402})(refuse)
suspected = idempotent(extensions=[Suspect("body.order", refuse=True)])(refuse)
kept = idempotent(keep={402})(refuse)


class Raising(IdempotentViewMixin, APIView):
    idempotency = Policy(keep="written")

    def post(self, request: Request) -> Response:
        asked: Any = request.data
        if asked["how"] == "writes":
            create()
        error = APIException("no")
        error.status_code = asked["status"]
        raise error


@idempotent(keep="written")
def not_found(request: HttpRequest) -> HttpResponse:
    raise Http404


@permission_required("payments.no_such_permission", login_url="/login/")
def permitted(request: HttpRequest) -> HttpResponse:
    create()
    return HttpResponse(status=201)


def is_known(user: Any) -> bool:
    return Effect.objects.filter(label="known").exists()


@user_passes_test(is_known, login_url="/login/")
def tested(request: HttpRequest) -> HttpResponse:
    how = json.loads(request.body)["how"]
    create()
    Effect.objects.filter(label="known").delete()  # so that the check would refuse it now
    if how == "dry run":
        transaction.set_rollback(True)
        return HttpResponse(status=302, headers={"Location": "/done/"})
    with suppress(IntegrityError):
        Effect.objects.create(pk=Effect.objects.latest("pk").pk, label="twice", attempt=0)
    return HttpResponse(status=404 if how == "refusal" else 302, headers={"Location": "/done/"})


@login_required
def signed_in(request: HttpRequest) -> HttpResponse:
    create()
    return HttpResponse(status=302, headers={"Location": "/done/"})


@require_GET
def only_get(request: HttpRequest) -> HttpResponse:
    create()
    return HttpResponse(status=200)


class Classy(LoginRequiredMixin, View):
    def put(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=200)


def refuses_itself(request: HttpRequest) -> HttpResponse:
    """It says 405 as a decorator would, and has written."""
    create()
    return HttpResponse(status=405)


VIEWS: dict[str, Callable[..., Any]] = {
    "written": written,
    "by-table": by_table,
    "leased": leased,
    "selected": selected,
    "selected-kept": selected_kept,
    "kept": kept,
    "suspected": suspected,
    "raising": Raising.as_view(),
    "not-found": not_found,
    "permitted": permitted,
    "signed-in": signed_in,
    "tested": tested,
    "only-get": only_get,
    "classy": Classy.as_view(),
    "refuses-itself": refuses_itself,
}
urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]
