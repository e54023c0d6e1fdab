"""A signed webhook (Standard Webhooks): verified, then carried out once, then answered so that the
sender stops.
"""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from django_idempotency import idempotency_exempt, idempotent_function
from django_idempotency.contrib.batches.messages import (
    Acknowledge,
    DeadLetter,
    Redeliver,
    disposition,
)
from django_idempotency.errors import IdempotencyError

from . import work
from .network import Declined
from .work import Attempt

logger = logging.getLogger(__name__)


@csrf_exempt
@require_POST
@idempotency_exempt  # the id of a webhook is its key, not an Idempotency-Key that a client adds
@transaction.non_atomic_requests
def webhook(request: HttpRequest) -> HttpResponse:
    """Verify first: who cannot sign claims nothing, and blocks no id."""
    from standardwebhooks import Webhook, WebhookVerificationError

    signed = Webhook(settings.WEBHOOK_SECRET)
    try:
        signed.verify(request.body, dict(request.headers), json_parse=False)  # signature and age
        event = json.loads(request.body)
    except (
        WebhookVerificationError,
        ValueError,
    ):  # a signature that is no base64 is a ValueError, too
        return HttpResponse(status=400)
    return received(request.path, request.headers["Webhook-Id"], event)


def received(endpoint: str, message_id: str, event: Any) -> HttpResponse:
    """Carry a message out and answer.

    What the handler raises is a 500, and the sender tries again.
    """
    try:
        handle(endpoint, message_id, event)
    except (IdempotencyError, Declined) as error:
        match disposition(error, answers=Declined):
            case Acknowledge():
                pass
            case Redeliver(after=after):
                return HttpResponse(status=503, headers={"Retry-After": str(after)})
            case DeadLetter():
                logger.exception("Webhook %s was not carried out.", message_id)
                return HttpResponse(status=422)
    return HttpResponse(status=204)  # also for a duplicate


@idempotent_function(
    # each sender has ids of its own, and may have one that another has, too
    key="[endpoint, message_id]",
    # what must not change; the rest may, from one delivery to the next
    validate="event.[type, data]",
    expires_after=timedelta(days=7),  # longer than the sender tries
    keep_exceptions=Declined,
)
def handle(endpoint: str, message_id: str, event: Any) -> None:
    if event["type"] == "order.confirmed":
        work.charge(attempt=Attempt.of_call(), **event["data"])
