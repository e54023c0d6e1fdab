"""The views of the shop. What changes something is guarded, as the docs say for the protocol."""

from __future__ import annotations

import os
import re
from typing import Any
from uuid import uuid4

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy
from django_idempotency.contrib.dialects import Ucp
from django_idempotency.rest_framework import IdempotentViewMixin

from . import checkouts
from .checkouts import VERSION
from .goods import Refused
from .models import Checkout, Effect, Order
from .stage import stage


def agent(request: Any) -> str | None:
    """Return whose keys they are. A shop that is not a test asks the signature, too."""
    found = re.search(r'profile="([^"]+)"', request.headers.get("UCP-Agent", ""))
    return found and found[1]


class ShopView(IdempotentViewMixin, APIView):
    idempotency = Policy(profile=Ucp(), required=True, fingerprint="raw", scope=agent)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse an agent that speaks a later version."""
        super().initial(request, *args, **kwargs)
        spoken = re.search(r'version="([^"]+)"', request.headers.get("UCP-Agent", ""))
        if spoken and spoken[1] > VERSION:
            raise Refused(400, f"Version {spoken[1]} is not supported")

    @staticmethod
    def find(kind: Any, key: str) -> Any:
        if (found := kind.objects.select_for_update().filter(pk=key).first()) is None:
            raise Refused(404, f"There is no {kind.__name__.lower()} {key}")
        return found

    @staticmethod
    def done(document: Checkout | Order, operation: str, status: int = 200) -> Response:
        """Save a document, count the effect, and respond with it."""
        document.save()
        Effect.objects.create(operation=operation)
        stage.in_view()
        return Response(document.body, status)


class CheckoutList(ShopView):
    def post(self, request: Request) -> Response:
        body = checkouts.new()
        checkouts.change(body, request.data)
        return self.done(Checkout(id=body["id"], body=body), "create", 201)


class CheckoutDetail(ShopView):
    def get(self, request: Request, key: str) -> Response:
        found = Checkout.objects.filter(pk=key).first()
        if found is None:
            raise Refused(404, f"There is no checkout {key}")
        return Response(found.body)

    def put(self, request: Request, key: str) -> Response:
        checkout = self.find(Checkout, key)
        checkouts.change(checkout.body, request.data)
        return self.done(checkout, "update")


class CheckoutComplete(ShopView):
    def post(self, request: Request, key: str) -> Response:
        checkout = self.find(Checkout, key)
        checkouts.complete(checkout.body, request.data, request.build_absolute_uri("/").rstrip("/"))
        return self.done(checkout, "complete")


class CheckoutCancel(ShopView):
    def post(self, request: Request, key: str) -> Response:
        checkout = self.find(Checkout, key)
        checkouts.cancel(checkout.body)
        return self.done(checkout, "cancel")


class AdjustmentSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    type = serializers.CharField()
    status = serializers.ChoiceField(["pending", "completed", "failed"])


class OrderDetail(ShopView):
    def get(self, request: Request, key: str) -> Response:
        return Response(Order.objects.get(pk=key).body)

    def put(self, request: Request, key: str) -> Response:
        order = self.find(Order, key)
        sent: Any = request.data
        adjustments = AdjustmentSerializer(data=sent.get("adjustments", []), many=True)
        if not adjustments.is_valid():
            raise Refused(422, str(adjustments.errors))
        order.body = {**sent, "id": key}
        return self.done(order, "change order")


class OrderShipping(ShopView):
    """The suite's own door: it says that an order is on its way."""

    def post(self, request: Request, key: str) -> Response:
        if not constant_time_compare(
            request.headers.get("Simulation-Secret", ""), os.environ["COMMERCE_SECRET"]
        ):
            raise Refused(403, "That is not the secret")
        order = self.find(Order, key)
        event = {
            "id": str(uuid4()),
            "type": "shipped",
            "occurred_at": timezone.now().isoformat(),
            "line_items": [],
        }
        order.body["fulfillment"]["events"].append(event)
        return self.done(order, "ship")


def discovery(request: HttpRequest) -> JsonResponse:
    """Say what the shop can do. Its links lead to a page of its own, since the suite opens each."""
    base = request.build_absolute_uri("/").rstrip("/")
    page = f"{base}/about"
    about = {"version": VERSION, "spec": page}
    names = ("checkout", "order", "discount", "fulfillment", "buyer_consent")
    handlers = {
        "shop_pay": "com.shopify.shop_pay",
        "google_pay": "com.google.pay",
        "mock_payment_handler": "dev.ucp.mock",
    }
    return JsonResponse(
        {
            "ucp": {
                "version": VERSION,
                "services": {
                    "dev.ucp.shopping": {**about, "rest": {"schema": page, "endpoint": base}}
                },
                "capabilities": [
                    {**about, "name": f"dev.ucp.shopping.{name}", "schema": page} for name in names
                ],
            },
            "payment": {
                "handlers": [
                    {
                        **about,
                        "id": key,
                        "name": name,
                        "config_schema": page,
                        "instrument_schemas": [page],
                    }
                    | {"config": {"shop_id": "flowers"}}
                    for key, name in handlers.items()
                ]
            },
        }
    )


def about(request: HttpRequest) -> HttpResponse:
    """Return the page that the shop's links lead to."""
    return HttpResponse("<!doctype html><html><title>A flower shop</title></html>")
