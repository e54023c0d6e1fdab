"""Of each API the one operation that its client calls: guarded, in the API's profile, and its responses' shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import path

from django_idempotency import idempotent

from .models import Payment
from .stage import stage

View = Callable[[HttpRequest], HttpResponseBase]


def operation(
    api: str, shape: Callable[[str], Mapping[str, Any]], *, profile: str | None = None, status: int = 201
) -> View:
    """Return the guarded view of an API's operation. `shape(id)` makes the body of its response."""

    @idempotent(profile=profile or api, scope=lambda request: "the account")
    def pay(request: HttpRequest) -> HttpResponse:
        stage.in_view()
        payment = Payment.objects.create(api=api)
        return JsonResponse(shape(str(payment.pk)), status=status)

    def noted(request: HttpRequest) -> HttpResponseBase:
        response = pay(request)
        stage.answered(response.status_code, replayed="Idempotent-Replayed" in response)
        return response

    return noted


def token(request: HttpRequest) -> HttpResponse:
    """Return an access token, which PayPal's client asks for before anything else."""
    return JsonResponse({"access_token": "t", "token_type": "Bearer", "expires_in": 3600})


urlpatterns = [
    path(
        "v1/payment_intents", operation("stripe", lambda number: {"id": number, "object": "payment_intent"}, status=200)
    ),
    path(
        "v2/payments",
        operation("square", lambda number: {"payment": {"id": number, "status": "COMPLETED"}}, status=200),
    ),
    path("v72/payments", operation("adyen", lambda number: {"pspReference": number, "resultCode": "Authorised"})),
    path("v1/oauth2/token", token),
    path("v2/checkout/orders", operation("paypal", lambda number: {"id": number, "status": "CREATED"})),
    path(
        "api/payment_orders",
        operation("modern-treasury", lambda number: {"id": number, "object": "payment_order"}, profile="default"),
    ),
    path(
        "emails:send",
        operation("azure", lambda number: {"id": number, "status": "Running"}, profile="repeatability", status=202),
    ),
]
