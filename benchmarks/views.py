"""The same work bare and guarded: two statements through a cursor, and a DRF view that inserts one
row.
"""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from rest_framework import generics, status
from rest_framework.authentication import TokenAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect
from testproject.payments.serializers import EffectSerializer

INSERT = (
    "INSERT INTO payments_effect (label, idempotency_key, attempt, created) VALUES ('work', "
    "'', 0, '2030-01-01')"
)
UPDATE = "UPDATE payments_charge SET refunded = refunded + 1 WHERE id = %s"
#: The charge that `UPDATE` changes; the setup of the comparison creates it.
STOCK = 1
#: About 1 kB, as in the responses of most APIs.
ANSWER = {
    "id": 1,
    "items": [
        {"name": f"item {number}", "amount": 2499, "currency": "inr"} for number in range(20)
    ],
}


def plain(_request: HttpRequest) -> JsonResponse:
    """It opens no transaction of its own: it runs in the guard's."""
    with connection.cursor() as cursor:
        cursor.execute(INSERT)
        cursor.execute(UPDATE, [STOCK])
    return JsonResponse(ANSWER, status=201)


def bare(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        return plain(request)


def execute(statement: str, *given: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, given)


def call(*, idempotency_key: str) -> str:
    """Call a provider that responds at once."""
    return idempotency_key


def in_steps(request: HttpRequest) -> JsonResponse:
    """The same in two steps that write here, and a third that calls elsewhere."""
    run: Any = request.idempotency  # type: ignore[attr-defined]
    run.step("insert", execute, INSERT)
    run.step("update", execute, UPDATE, STOCK)
    run.step("call", call)
    return JsonResponse(ANSWER, status=201)


atomic = idempotent()(plain)
steps = idempotent(guarantee="lease")(in_steps)
lease = idempotent(guarantee="lease")(bare)


class BareCreate(generics.CreateAPIView):  # type: ignore[type-arg]
    queryset = Effect.objects.all()
    serializer_class = EffectSerializer
    authentication_classes = (TokenAuthentication,)


class GuardedCreate(IdempotentViewMixin, BareCreate):
    """The same view behind the mixin."""


class Authenticated(APIView):
    """What authentication alone costs: no work follows."""

    authentication_classes = (TokenAuthentication,)

    def post(self, _request: Request) -> Response:
        return Response({"label": "work"}, status=status.HTTP_201_CREATED)


class GuardedInRedis(IdempotentViewMixin, BareCreate):
    """The same view, with its records in Redis."""

    idempotency = Policy(store="redis", guarantee="lease")
