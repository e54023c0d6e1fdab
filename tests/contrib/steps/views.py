"""One view of two steps behind each entry point.

Its first step writes here, its second calls elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adrf.decorators import api_view as async_api_view
from adrf.views import APIView as AsyncAPIView
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from ninja import NinjaAPI
from ninja.security import django_auth
from rest_framework.authentication import SessionAuthentication
from rest_framework.decorators import api_view, authentication_classes
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.rest_framework import IdempotentViewMixin

from . import work
from .work import Declined

UNDO_ON = UndoOn(Declined, Http404)
LEASE: dict[str, Any] = {"guarantee": "lease", "extensions": [UNDO_ON]}
#: How the next call of the view ends, behind its steps: a status, or what it raises.
END: list[int | BaseException] = []
#: What it does instead of its two steps.
BODY: list[Callable[..., Any]] = []


def book(request: Any) -> tuple[dict[str, Any], int]:
    """Do two things, and end as the test has set."""
    run = request.idempotency
    if BODY:
        return BODY[0](run), 201
    order = run.step("order", work.make_order, "visa", undo=work.cancel_order)
    charged = run.step("charge", work.charge, order, undo=work.refund, ask=work.found_out)
    return ended({"order": order, "charge": charged})


async def abook(request: Any) -> tuple[dict[str, Any], int]:
    """See book()."""
    run = request.idempotency
    if BODY:
        return await BODY[0](run), 201
    order = await run.astep("order", work.make_order, "visa", undo=work.cancel_order)
    charged = await run.astep("charge", work.acharge, order, undo=work.arefund, ask=work.found_out)
    return ended({"order": order, "charge": charged})


def ended(done: dict[str, Any]) -> tuple[dict[str, Any], int]:
    how = END.pop(0) if END else 201
    if isinstance(how, BaseException):
        raise how
    return done, how


def plain(request: HttpRequest) -> HttpResponse:
    done, status = book(request)
    return JsonResponse(done, status=status)


async def aplain(request: HttpRequest) -> HttpResponse:
    done, status = await abook(request)
    return JsonResponse(done, status=status)


def rest(request: Any) -> Response:
    done, status = book(getattr(request, "_request", request))
    return Response(done, status=status)


async def arest(request: Any) -> Response:
    done, status = await abook(getattr(request, "_request", request))
    return Response(done, status=status)


def sessions(function: Any) -> Any:
    return authentication_classes([SessionAuthentication])(function)


class Rest(IdempotentViewMixin, APIView):
    authentication_classes = (SessionAuthentication,)
    idempotency = Policy(**LEASE)

    def post(self, request: Any) -> Response:
        return rest(request._request)


class AsyncRest(IdempotentViewMixin, AsyncAPIView):
    authentication_classes = (SessionAuthentication,)
    idempotency = Policy(**LEASE)

    async def post(self, request: Any) -> Response:
        return await arest(request._request)


class Lent(APIView):
    authentication_classes = (SessionAuthentication,)

    def post(self, request: Any) -> Response:
        return rest(request._request)


ninja = NinjaAPI(urls_namespace="steps", auth=django_auth)


@ninja.post("/ninja/")
@idempotent(**LEASE)
def operation(request: HttpRequest) -> Any:
    return plain(request)


@ninja.post("/async-ninja/")
@idempotent(**LEASE)
async def async_operation(request: HttpRequest) -> Any:
    return await aplain(request)


GUARD: Any = idempotent(**LEASE)
VIEWS: dict[str, Any] = {
    "decorator": GUARD(plain),
    "async": GUARD(aplain),
    "mixin": Rest.as_view(),
    "adrf": AsyncRest.as_view(),
    "above": GUARD(api_view(["POST"])(sessions(rest))),
    "below": api_view(["POST"])(sessions(GUARD(rest))),
    "adrf-below": async_api_view(["POST"])(sessions(GUARD(arest))),
    "middleware": plain,
    "middleware-async": aplain,
    "middleware-rest": Lent.as_view(),
}
#: Those in which REST framework makes a response of an exception, before the guard sees it.
HANDLED = ("mixin", "adrf", "below", "adrf-below", "middleware-rest", "above")
DOORS = [*VIEWS, "ninja", "async-ninja"]
urlpatterns = [
    *(path(f"{name}/", view) for name, view in VIEWS.items()),
    path("", ninja.urls),
    path("atomic/", idempotent(guarantee="atomic")(plain)),
    path("off/", idempotent(guarantee="lease")(plain)),
]
