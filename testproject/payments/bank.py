"""A bank that is called over HTTP, through the client half; and the bank itself, which is a view
here.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.http import JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from django_idempotency import idempotent

from .network import UNLUCKY
from .work import Attempt

if TYPE_CHECKING:
    import httpx
    from django.http import HttpRequest


def bank_client() -> httpx.Client:
    """Return a client of the bank. `manage.py idempotency_resume calls` uses it, too."""
    from django_idempotency.contrib.client.httpx import IdempotentClient

    return IdempotentClient("bank", base_url=settings.BANK_URL, trust_env=False)


def transfer(*, name: str, amount: int, attempt: int) -> dict[str, Any]:
    """Let the bank send money. Under one name it does so once, whoever dies in between."""
    with bank_client() as bank:
        response = bank.post(
            "/bank/transfers/", json={"amount": amount}, extensions={"idempotency": name}
        )
    response.raise_for_status()
    if amount == UNLUCKY and attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    sent: dict[str, Any] = response.json()
    return sent


@csrf_exempt
@require_POST
@idempotent(required=True, anonymous="shared")
def transfers(request: HttpRequest) -> JsonResponse:
    """The bank: it moves money once for each key."""
    effect = Attempt.of(request).effect("bank")
    effect.save()
    return JsonResponse(
        {"transfer": effect.pk, "amount": json.loads(request.body)["amount"]}, status=201
    )
