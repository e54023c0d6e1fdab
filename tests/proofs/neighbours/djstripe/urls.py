"""The view of the how-to, and dj-stripe's own."""

from __future__ import annotations

import threading
from typing import Any

import stripe
from django.db import transaction
from django.http import HttpRequest, HttpResponseBadRequest
from django.shortcuts import get_object_or_404
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_exempt
from djstripe.models import WebhookEndpoint
from djstripe.views import ProcessWebhookView

from django_idempotency import idempotent
from testproject.payments.models import Effect

#: What the work waits for, and how it ends.
GATE = threading.Event()
GATE.set()
BEGUN = threading.Event()
FAILING = threading.Event()


def carry_out(trigger: Any, **options: Any) -> None:
    """DJSTRIPE_WEBHOOK_EVENT_CALLBACK: the work, after dj-stripe's validation."""
    BEGUN.set()
    GATE.wait(10)
    Effect.objects.create(label=trigger.json_body["id"])
    if FAILING.is_set():
        raise LookupError


@idempotent(
    guarantee="lease",
    required=True,
    key="body.id",
    fingerprint="body.[type, data]",
    scope=lambda request: str(request.resolver_match.kwargs["uuid"]),
)
@method_decorator([csrf_exempt, transaction.non_atomic_requests], name="dispatch")
class StripeWebhooks(ProcessWebhookView):
    def dispatch(self, request: HttpRequest, uuid: Any) -> Any:
        endpoint = get_object_or_404(WebhookEndpoint, djstripe_uuid=uuid)
        signature, tolerance = (
            request.headers.get("Stripe-Signature", ""),
            endpoint.djstripe_tolerance,
        )
        try:
            stripe.WebhookSignature.verify_header(
                request.body.decode(), signature, endpoint.secret, tolerance
            )
        except (ValueError, stripe.SignatureVerificationError):
            return HttpResponseBadRequest()
        return super().dispatch(request, uuid=uuid)


urlpatterns = [
    path("webhooks/<uuid:uuid>/", StripeWebhooks.as_view()),
    path("stripe/", include("djstripe.urls", namespace="djstripe")),
]
