"""Of each API the one operation that its client calls: guarded, in the API's dialect, and its
responses' shape.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import path

from django_idempotency import OnReplay, idempotent
from django_idempotency.core.dialects import Dialect
from django_idempotency.errors import RequestMismatch
from tests.support.dialects import DIALECTS

from .models import Payment
from .stage import stage

View = Callable[..., HttpResponseBase]


class Svix(Dialect):
    statuses = {RequestMismatch: 409}  # noqa: RUF012 - as a reader types it


def operation(
    api: str,
    shape: Callable[[str], Mapping[str, Any]],
    *,
    profile: Dialect | None = None,
    status: int = 201,
    **fields: Any,
) -> View:
    """Return the guarded view of an API's operation. `shape(id)` makes the body of its response."""

    @idempotent(profile=profile or DIALECTS[api], scope=lambda request: "the account", **fields)
    def pay(request: HttpRequest, **_: str) -> HttpResponse:
        stage.in_view()
        payment = Payment.objects.create(api=api)
        if stage.fails():
            return JsonResponse({"error": {"message": "Try again."}}, status=503)
        return JsonResponse(shape(str(payment.pk)), status=status)

    def noted(request: HttpRequest, **parts: str) -> HttpResponseBase:
        response = pay(request, **parts)
        stage.answered(response.status_code, replayed="Idempotent-Replayed" in response)
        return response

    return noted


def token(request: HttpRequest) -> HttpResponse:
    """Return an access token, which PayPal's client asks for before anything else."""
    return JsonResponse({"access_token": "t", "token_type": "Bearer", "expires_in": 3600})


def gocardless_payment(number: str) -> dict[str, Any]:
    return {"payments": {"id": number, "status": "pending_submission"}}


def as_gocardless_replays(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Answer a replay as GoCardless does, if the test wants that: with a 409 that names what the
    first request made.
    """
    if not stage.conflicting:
        return response
    links = {"conflicting_resource_id": json.loads(response.content)["payments"]["id"]}
    reason = {
        "reason": "idempotent_creation_conflict",
        "message": "A resource has been created.",
        "links": links,
    }
    error = {"code": 409, "type": "invalid_state", "message": reason["message"], "errors": [reason]}
    return JsonResponse({"error": error}, status=409)


def gocardless_get(request: HttpRequest, number: str) -> HttpResponse:
    """Return a payment that has been made."""
    return JsonResponse(gocardless_payment(str(Payment.objects.get(pk=number).pk)))


urlpatterns = [
    path(
        "v1/payment_intents",
        operation("stripe", lambda number: {"id": number, "object": "payment_intent"}, status=200),
    ),
    path(
        "v2/payments",
        operation(
            "square", lambda number: {"payment": {"id": number, "status": "COMPLETED"}}, status=200
        ),
    ),
    path(
        "v72/payments",
        operation("adyen", lambda number: {"pspReference": number, "resultCode": "Authorised"}),
    ),
    path("v1/oauth2/token", token),
    path(
        "v2/checkout/orders",
        operation("paypal", lambda number: {"id": number, "status": "CREATED"}),
    ),
    path(
        "api/payment_orders",
        operation(
            "modern-treasury",
            lambda number: {"id": number, "object": "payment_order"},
            profile=DIALECTS["default"],
        ),
    ),
    path(
        "emails:send",
        operation(
            "azure",
            lambda number: {"id": number, "status": "Running"},
            profile=DIALECTS["repeatability"],
            status=202,
        ),
    ),
    path(
        "payments",
        operation("gocardless", gocardless_payment, extensions=[OnReplay(as_gocardless_replays)]),
    ),
    path("payments/<number>", gocardless_get),
    path(
        "mollie/v2/payments",
        operation("mollie", lambda number: {"id": f"tr_{number}", "resource": "payment"}),
    ),
    path(
        "api/v1/app/<app>/msg",
        operation(
            "svix",
            lambda number: {
                "id": number,
                "eventType": "e",
                "payload": {},
                "timestamp": "2026-01-01T00:00:00Z",
            },
            profile=Svix(),
            status=202,
        ),
    ),
]
