"""Views of each kind, for a schema."""

from __future__ import annotations

from typing import Any

from django.urls import path
from rest_framework import serializers, viewsets
from rest_framework.decorators import api_view, schema
from rest_framework.mixins import CreateModelMixin, ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.contrib.publishing.spectacular import AutoSchema
from django_idempotency.core.policy import Policy
from django_idempotency.decorators import idempotency_exempt, idempotent
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Charge


class ChargeSerializer(serializers.ModelSerializer[Charge]):
    class Meta:
        model = Charge
        fields = ("amount", "currency")


class Charges(
    IdempotentViewMixin, CreateModelMixin, ListModelMixin, viewsets.GenericViewSet[Charge]
):
    queryset = Charge.objects.all()
    serializer_class = ChargeSerializer
    idempotency = Policy(required=True, ttl=7 * 86400)


class Documented(IdempotentViewMixin, APIView):
    """A person's own words."""

    serializer_class = ChargeSerializer

    def post(self, request: Request) -> Response:
        return Response(status=201)

    @idempotency_exempt
    def delete(self, request: Request) -> Response:
        return Response(status=204)


class Choosing(IdempotentViewMixin, APIView):
    serializer_class = ChargeSerializer

    def get_idempotency_policy(self) -> Policy:
        return Policy(required=bool(self.request.user.pk))

    def post(self, request: Request) -> Response:
        return Response(status=201)


class Bare(APIView):
    serializer_class = ChargeSerializer

    def post(self, request: Request) -> Response:
        return Response(status=201)


@idempotent(ttl=3600, keep={409})
@api_view(["POST"])
@schema(AutoSchema())  # @api_view has no other moment to find it
def decorated(request: Request) -> Response:
    return Response(status=201)


decorated.cls.serializer_class = ChargeSerializer  # type: ignore[attr-defined]


class Formatted(Documented):
    """Keys of one format."""

    idempotency = Policy(key_format="uuid7")


class Issued(Documented):
    """Keys that the server issues."""

    idempotency = Policy(key_format="issued", required=True)


class Patterned(Documented):
    """Keys of a pattern."""

    idempotency = Policy(key_format="order-[0-9]+", required=True)


urlpatterns: list[Any] = [
    path("formatted/", Formatted.as_view()),
    path("issued/", Issued.as_view()),
    path("patterned/", Patterned.as_view()),
    path("charges/", Charges.as_view({"post": "create", "get": "list"})),
    path("documented/<int:pk>/", Documented.as_view()),
    path("choosing/", Choosing.as_view()),
    path("bare/", Bare.as_view()),
    path("decorated/", decorated),
]
