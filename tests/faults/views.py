"""Charges of customers without database rows, so that only the idempotency store misses the
database.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import OnTakeover, idempotent
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Charge, Effect
from testproject.payments.work import Attempt

from .database import sleep
from .plans import LEASE, LONG_LEASE, PATIENCE, SHORT_LEASE, areach, news, reach


def customer(request: HttpRequest) -> str | None:
    return request.headers.get("X-Customer")


def ready(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(os.getpid()))


def charge(request: Any) -> dict[str, int]:
    attempt = Attempt.of(request)
    effect = attempt.effect("charge")
    effect.save()
    reach("viewing", attempt.key)
    return {"effect": effect.pk, "attempt": attempt.number}


async def acharge(request: HttpRequest) -> dict[str, int]:
    attempt = Attempt.of(request)
    effect = attempt.effect("charge")
    await effect.asave()
    await areach("viewing", attempt.key)
    await attempt.effect("sent").asave()
    return {"effect": effect.pk, "attempt": attempt.number}


@csrf_exempt
def bare(request: HttpRequest) -> JsonResponse:
    """Guarded by the middleware."""
    return JsonResponse(charge(request), status=201)


@csrf_exempt
@idempotent()
def decorated(request: HttpRequest) -> JsonResponse:
    return JsonResponse(charge(request), status=201)


@csrf_exempt
@idempotent(fingerprint="headers")
def by_headers(request: HttpRequest) -> JsonResponse:
    """Charge whatever has come, of which nothing is compared."""
    return JsonResponse({**charge(request), "length": len(request.read())}, status=201)


@csrf_exempt
@idempotent(wait=PATIENCE)
def waiting(request: HttpRequest) -> JsonResponse:
    return JsonResponse(charge(request), status=201)


@csrf_exempt
@idempotent(guarantee="lease", lease=LEASE)
def leased(request: HttpRequest) -> JsonResponse:
    return JsonResponse(charge(request), status=201)


@csrf_exempt
@idempotent(guarantee="lease", lease=LONG_LEASE)
def long_leased(request: HttpRequest) -> JsonResponse:
    return JsonResponse(charge(request), status=201)


def look_first(takeover: Any) -> Any:
    """Find the effect of the owner that crashed."""
    reach("asking", takeover.key)
    effect = Effect.objects.filter(idempotency_key=takeover.key).first()
    return (
        takeover.run()
        if effect is None
        else takeover.found(JsonResponse({"effect": effect.pk}, status=201))
    )


@csrf_exempt
@idempotent(guarantee="lease", lease=SHORT_LEASE, extensions=[OnTakeover(look_first)])
def looked_up(request: HttpRequest) -> JsonResponse:
    return JsonResponse(charge(request), status=201)


@csrf_exempt
@idempotent(guarantee="lease", lease=SHORT_LEASE)
def sent(request: Any) -> JsonResponse:
    """Charge under a downstream key, which each attempt leaves behind."""
    downstream = request.idempotency.derive("charge")
    Attempt.of(request).effect(f"sent {downstream[:32]}").save()
    return JsonResponse({**charge(request), "downstream": downstream[:32]}, status=201)


@csrf_exempt
@idempotent()
def charged_elsewhere(request: Any) -> JsonResponse:
    """Charge at a provider that remembers the downstream keys it received, whatever happens
    here.
    """
    attempt = Attempt.of(request)
    provider = news(attempt.key, "provider")
    with provider.open("a") as book:
        book.write(f"{request.idempotency.derive('charge')}\n")
    return JsonResponse(charge(request), status=201)


@csrf_exempt
@idempotent()
def slow(request: HttpRequest) -> JsonResponse:
    """Spend the first attempt in one statement."""
    done = charge(request)
    if done["attempt"] == 1:
        sleep()
    return JsonResponse(done, status=201)


@csrf_exempt
@idempotent()
def orphaned(request: HttpRequest) -> JsonResponse:
    """Fail at the first attempt's COMMIT.

    (On MariaDB, which defers no constraint, the view fails.)
    """
    done = charge(request)
    if done["attempt"] == 1:
        Charge.objects.create(user_id=0, amount=2499, currency="inr")
    return JsonResponse(done, status=201)


class Mixed(IdempotentViewMixin, APIView):
    authentication_classes = ()
    permission_classes = ()

    def post(self, request: Request) -> Response:
        return Response(charge(request), status=201)


#: References that keep running tasks alive.
BACKGROUND: set[asyncio.Task[dict[str, int]]] = set()


async def outliving(request: HttpRequest) -> dict[str, int]:
    """Work, and close its connection, as no request will: this one may be over by then."""
    try:
        return await acharge(request)
    finally:
        await sync_to_async(connections.close_all)()


@csrf_exempt
async def abare(request: HttpRequest) -> JsonResponse:
    """Guarded by the middleware.

    The work continues when the client, and with it this coroutine, is gone.
    """
    work = asyncio.ensure_future(outliving(request))
    BACKGROUND.add(work)
    work.add_done_callback(BACKGROUND.discard)
    return JsonResponse(await asyncio.shield(work), status=201)


@csrf_exempt
@idempotent(guarantee="lease", lease=LEASE)
async def adecorated(request: HttpRequest) -> JsonResponse:
    """See abare()."""
    return await abare(request)


@csrf_exempt
@idempotent(guarantee="lease", lease=LONG_LEASE)
async def along_leased(request: HttpRequest) -> JsonResponse:
    """See abare()."""
    return await abare(request)
