"""The same charge as a DRF ViewSet, a DRF class view, a plain view and an async view; and a
payout.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from django.contrib.auth.decorators import login_required
from django.http import JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_http_methods
from rest_framework import generics, mixins, status, viewsets
from rest_framework.decorators import action, api_view
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.permissions import IsAdminUser
from rest_framework.response import Response

from django_idempotency import Policy, idempotent
from django_idempotency.rest_framework import IdempotentViewMixin

from . import bank, work
from .forms import ChargeForm
from .models import Charge, Effect
from .network import Declined
from .serializers import ChargeSerializer, EffectSerializer, PayoutSerializer, RefundSerializer
from .work import Attempt, RefundTooLarge

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from rest_framework.request import Request
    from rest_framework.serializers import BaseSerializer

# ---- Django REST framework
# -------------------------------------------------------------------------------------------


class CardDeclined(APIException):
    status_code = status.HTTP_402_PAYMENT_REQUIRED
    default_code = "card_declined"
    default_detail = str(Declined())


class ChargesOfUser(mixins.ListModelMixin, mixins.CreateModelMixin, generics.GenericAPIView):
    """What the two charge views share: whose charges they list, and how they make one."""

    serializer_class = ChargeSerializer

    def get_queryset(self) -> QuerySet[Charge]:
        return Charge.objects.filter(user=self.request.user.pk)

    def perform_create(self, serializer: BaseSerializer) -> None:
        try:
            serializer.save(user_id=self.request.user.pk, attempt=Attempt.of(self.request))
        except Declined:
            raise CardDeclined from None


class ChargeViewSet(IdempotentViewMixin, ChargesOfUser, viewsets.GenericViewSet):
    """Guarded by the mixin."""

    idempotency = Policy(required=True, ttl=timedelta(days=1))

    @action(detail=True, methods=["post"], serializer_class=RefundSerializer)
    def refund(self, request: Request, pk: str) -> Response:
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        try:
            serializer.save(charge=self.get_object(), attempt=Attempt.of(request))
        except RefundTooLarge as error:
            raise ValidationError({"amount": [str(error)]}) from None
        return Response(serializer.data, status=status.HTTP_201_CREATED)


class BareChargeView(ChargesOfUser):
    """Without the mixin: the middleware guards it."""

    def get(self, request: Request) -> Response:
        return self.list(request)

    def post(self, request: Request) -> Response:
        return self.create(request)


@idempotent()
@api_view(["POST"])
def payout(request: Request) -> Response:
    """Respond with the key to pass on to the bank: the same key at every attempt."""
    serializer = PayoutSerializer(data=request.data)
    serializer.is_valid(raise_exception=True)
    idempotency = cast("Any", request).idempotency
    effect = work.payout(Attempt.of(request))
    bank_key = idempotency.derive("bank") if idempotency else None
    return Response(
        {"id": effect.pk, **serializer.data, "bank_key": bank_key}, status=status.HTTP_201_CREATED
    )


@idempotent(guarantee="lease", lease=2)
@api_view(["POST"])
def transfer(request: Request) -> Response:
    """Let the bank send money, over HTTP: under one name on every attempt, so once."""
    serializer = PayoutSerializer(data=request.data)
    serializer.is_valid(raise_exception=True)
    idempotency = cast("Any", request).idempotency
    sent = bank.transfer(
        name=f"transfer-{idempotency.derive('bank')}",
        amount=serializer.validated_data["amount"],
        attempt=idempotency.attempt,
    )
    return Response(sent, status=status.HTTP_201_CREATED)


class EffectList(generics.ListAPIView):
    """How often the work ran; `?key=` selects one idempotency key."""

    serializer_class = EffectSerializer
    permission_classes = (IsAdminUser,)

    def get_queryset(self) -> QuerySet[Effect]:
        key = self.request.query_params.get("key")
        return Effect.objects.all() if key is None else Effect.objects.filter(idempotency_key=key)


# ---- Plain Django
# --------------------------------------------------------------------------------------------------


def shown(charge: Charge) -> dict[str, object]:
    return {
        "id": charge.pk,
        "amount": charge.amount,
        "currency": charge.currency,
        "refunded": charge.refunded,
    }


def declined(error: Declined) -> JsonResponse:
    return JsonResponse({"detail": str(error)}, status=402)


@require_http_methods(["GET", "POST"])
@login_required
def bare_charges(request: HttpRequest) -> JsonResponse:
    """Without a decorator: the middleware guards it."""
    assert request.user.is_authenticated
    if request.method == "GET":
        return JsonResponse(
            [shown(charge) for charge in Charge.objects.filter(user=request.user.pk)], safe=False
        )
    form = ChargeForm.of(request)
    if not form.is_valid():
        return JsonResponse(form.errors, status=400)
    try:
        charge = work.charge(
            user_id=request.user.pk, attempt=Attempt.of(request), **form.cleaned_data
        )
    except Declined as error:
        return declined(error)
    return JsonResponse(shown(charge), status=201)


@login_required
@idempotent()
def plain_charges(request: HttpRequest) -> JsonResponse:
    """Guarded by the decorator, below login_required."""
    return bare_charges(request)


@require_http_methods(["GET", "POST"])
@login_required
@idempotent(guarantee="lease")
async def async_charges(request: HttpRequest) -> JsonResponse:
    """Guarded by the decorator, as an async view.

    No transaction can cover it, so the guarantee is a lease.
    """
    user = await request.auser()
    assert user.is_authenticated
    if request.method == "GET":
        return JsonResponse(
            [shown(charge) async for charge in Charge.objects.filter(user=user.pk)], safe=False
        )
    form = ChargeForm.of(request)
    if not form.is_valid():
        return JsonResponse(form.errors, status=400)
    try:
        charge = await work.acharge(
            user_id=user.pk, attempt=Attempt.of(request), **form.cleaned_data
        )
    except Declined as error:
        return declined(error)
    return JsonResponse(shown(charge), status=201)


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """What to type, and where to look. `make demo` puts a token into the environment."""
    facts = {
        "address": request.build_absolute_uri("/").rstrip("/"),
        "token": os.environ.get("DEMO_TOKEN", "…"),
        "counted": "METRICS" in os.environ,
    }
    return render(request, "payments/home.html", facts)
