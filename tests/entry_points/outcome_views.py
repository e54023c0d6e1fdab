"""Views that write a row and then end in each of the ways a view can end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.db import IntegrityError, connection, transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.multipartparser import MultiPartParserError
from django.urls import path
from django.views import View
from rest_framework.decorators import api_view
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect


def write() -> None:
    Effect.objects.create(label="written", idempotency_key="", attempt=0)


def pay(request: HttpRequest) -> HttpResponse:
    write()
    return HttpResponse("paid", status=201)


class Pay(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


def swallow_integrity_error() -> None:
    """Break the transaction as a view does that catches IntegrityError around a save()."""
    first = Effect.objects.latest("pk")
    try:
        with transaction.atomic(savepoint=False):
            Effect.objects.create(pk=first.pk, label="twice", idempotency_key="", attempt=0)
    except IntegrityError:
        pass


def swallow_raw_error() -> None:
    """Break the transaction behind Django's back, where the database notices (PostgreSQL)."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM there_is_no_such_table")
    except Exception:  # noqa: BLE001 - each driver has its own error
        pass


#: Further exceptions that Django turns into a status below 500.
RAISING = {
    "suspicious": SuspiciousOperation("a forged session"),
    "bad": BadRequest("no"),
    "malformed": MultiPartParserError("no boundary"),
}


# One line per ending.
def end(request: HttpRequest, how: str) -> HttpResponse:  # noqa: C901, PLR0911, PLR0912
    """Write, then end as `how` says."""
    write()
    handle = getattr(request, "idempotency", None)
    match how:
        case "integrity":
            swallow_integrity_error()
            return JsonResponse({"how": how}, status=201)
        case "raw":
            swallow_raw_error()
            return JsonResponse({"how": how}, status=201)
        case "raise":
            raise LookupError("the view failed")
        case "404":
            raise Http404
        case "denied":
            raise PermissionDenied
        case "404-in-a-broken-transaction":
            swallow_integrity_error()
            raise Http404
        case raising if raising in RAISING:
            raise RAISING[raising]
        case "kept-502":
            assert handle is not None
            handle.keep()
            return JsonResponse({"how": how}, status=502)
        case "dropped-201":
            assert handle is not None
            handle.drop()
            return JsonResponse({"how": how}, status=201)
        case "hook":
            transaction.on_commit(fail)
            return JsonResponse({"how": how}, status=201)
        case "derive":
            assert handle is not None
            return JsonResponse({"key": handle.derive("bank")}, status=201)
        case "durable":
            with transaction.atomic(durable=True):
                return JsonResponse({"how": how}, status=201)
        case _:
            return JsonResponse({"how": how}, status=int(how))


def fail() -> None:
    raise LookupError("the on_commit callback failed")


def middleware_view(request: HttpRequest) -> HttpResponse:
    return end(request, json.loads(request.body)["how"])


@idempotent()
def decorated(request: HttpRequest) -> HttpResponse:
    return middleware_view(request)


@idempotent(guarantee="lease")
def leased(request: HttpRequest) -> HttpResponse:
    return middleware_view(request)


def drf_end(request: Request) -> Any:
    how = json.loads(request.body)["how"]
    write()
    if how == "validation":
        raise ValidationError({"amount": "no"})
    if how == "payment":
        error = APIException("declined")
        error.status_code = 402
        raise error
    Effect.objects.latest("pk").delete()
    done = end(request._request, how)
    return Response(json.loads(done.content), status=done.status_code)


class Mixed(IdempotentViewMixin, APIView):
    def post(self, request: Request) -> Any:
        return drf_end(request)


class LeasedMixed(Mixed):
    idempotency = Policy(guarantee="lease")


class LeasedLater(Mixed):
    def get_idempotency_policy(self) -> Policy:
        return Policy(guarantee="lease")


@idempotent()
@api_view(["POST"])
def above(request: Request) -> Any:
    return drf_end(request)


@api_view(["POST"])
@idempotent()
def below(request: Request) -> Any:
    return drf_end(request)


@api_view(["POST"])
@idempotent(guarantee="lease")
def leased_below(request: Request) -> Any:
    return drf_end(request)


VIEWS: dict[str, Callable[..., Any]] = {
    "middleware": middleware_view,
    "decorated": decorated,
    "leased": leased,
    "leased-mixed": LeasedMixed.as_view(),
    "leased-later": LeasedLater.as_view(),
    "leased-below": leased_below,
    "mixed": Mixed.as_view(),
    "above": above,
    "below": below,
}
urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]
