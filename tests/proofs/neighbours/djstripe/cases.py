"""dj-stripe's webhook view: an event is handled once, and only a sender with Stripe's signature
learns of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
import stripe
from django.core import checks
from django.db import connections
from django.test import Client
from djstripe.models import WebhookEndpoint, WebhookEventTrigger

from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect

from .urls import BEGUN, FAILING, GATE

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _open() -> Iterator[None]:
    yield
    GATE.set()
    BEGUN.clear()
    FAILING.clear()


def endpoint(secret: str) -> WebhookEndpoint:
    facts: dict[str, Any] = {
        "id": f"we_{secret}",
        "url": "https://shop.example/",
        "enabled_events": ["*"],
    }
    return WebhookEndpoint.objects.create(
        secret=secret, livemode=False, djstripe_uuid=uuid4(), **facts
    )


@pytest.fixture
def ours() -> WebhookEndpoint:
    return endpoint("whsec_ours")


def event(amount: int = 100, **more: Any) -> bytes:
    data = {"object": {"id": "bal_1", "object": "balance", "amount": amount}}
    facts = {
        "object": "event",
        "type": "balance.available",
        "livemode": False,
        "api_version": "2024-06-20",
    }
    return json.dumps(
        {"id": "evt_1", "data": data, "pending_webhooks": 1, **facts, **more}
    ).encode()


def signed(body: bytes, secret: str, at: float | None = None) -> str:
    moment = int(at or time.time())
    return f"t={moment},v1=" + stripe.WebhookSignature._compute_signature(
        f"{moment}.{body.decode()}", secret
    )


def deliver(
    to: WebhookEndpoint,
    body: bytes | None = None,
    *,
    secret: str | None = None,
    root: str = "/webhooks",
    **more: Any,
) -> Any:
    body = event() if body is None else body
    headers = {"Stripe-Signature": signed(body, secret or to.secret, **more)}
    client = Client(raise_request_exception=False, enforce_csrf_checks=True)
    return client.post(
        f"{root}/{to.djstripe_uuid}/", body, content_type="application/json", headers=headers
    )


def effects() -> int:
    return Effect.objects.count()


def replayed(response: Any) -> bool:
    return "Idempotent-Replayed" in response


def test_what_dj_stripe_does_without_us(ours: WebhookEndpoint) -> None:
    """A project's callback is called for each delivery, which is why the guard exists."""
    for _ in range(2):
        assert deliver(ours, root="/stripe/webhook").status_code == 200
    assert effects() == 2


def test_an_event_is_carried_out_once(ours: WebhookEndpoint) -> None:
    """A redelivery may differ in its own facts; it gets the first response, and dj-stripe stores
    one trigger.
    """
    first, again = deliver(ours), deliver(ours, event(pending_webhooks=0), at=time.time() - 60)
    assert (first.status_code, replayed(first)) == (200, False)
    assert (again.status_code, again.content, replayed(again)) == (200, first.content, True)
    assert (effects(), WebhookEventTrigger.objects.count()) == (1, 1)


def test_two_endpoints_are_two(ours: WebhookEndpoint) -> None:
    """Stripe sends an event to each endpoint that subscribes to it."""
    assert not replayed(deliver(ours))
    assert not replayed(deliver(endpoint("whsec_theirs")))
    assert effects() == 2


def test_a_forged_event_never_occupies_the_key(ours: WebhookEndpoint) -> None:
    """A forged event is refused before anything is claimed, whatever it says; Stripe's own is
    handled afterwards.
    """
    forged = [
        deliver(ours, secret="guessed"),
        deliver(ours, event(amount=1), secret="guessed"),
        deliver(ours, at=time.time() - 3600),
        Client().post(f"/webhooks/{ours.djstripe_uuid}/", event(), content_type="application/json"),
        deliver(ours, b"{", secret="guessed"),
    ]
    assert {response.status_code for response in forged} == {400}
    assert (IdempotencyRecord.objects.count(), effects()) == (0, 0)
    assert (deliver(ours).status_code, effects()) == (200, 1)


def test_a_forged_event_is_not_answered_from_the_record(ours: WebhookEndpoint) -> None:
    """Neither 200, nor 409 while the real one runs, nor 422: a forger learns nothing about the
    record.
    """
    GATE.clear()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(deliver_and_close, ours)
        assert BEGUN.wait(10)
        assert deliver(ours, secret="guessed").status_code == 400
        busy = deliver(ours)
        GATE.set()
        assert running.result().status_code == 200
    assert (busy.status_code, busy.json()["code"]) == (409, "in-progress")  # Stripe tries again
    for body in (event(), event(amount=1)):
        refused = deliver(ours, body, secret="guessed")
        assert (refused.status_code, refused.content, "Idempotency-Key" in refused) == (
            400,
            b"",
            False,
        )
    assert effects() == 1


def deliver_and_close(to: WebhookEndpoint) -> Any:
    try:
        return deliver(to)
    finally:
        connections.close_all()


def test_a_sender_whose_right_was_withdrawn_never_sees_the_replay(ours: WebhookEndpoint) -> None:
    """A secret that was rotated out signs nothing, and a deleted endpoint shows no records."""
    assert deliver(ours).status_code == 200
    WebhookEndpoint.objects.filter(pk=ours.pk).update(secret="whsec_new")
    refused = deliver(ours)
    assert (refused.status_code, replayed(refused)) == (400, False)
    WebhookEndpoint.objects.all().delete()
    assert deliver(ours).status_code == 404


def test_an_event_that_failed_is_carried_out_again(ours: WebhookEndpoint) -> None:
    """500, and dj-stripe keeps its trace of the error; what the work wrote is rolled back, and the
    key is free.
    """
    FAILING.set()
    assert deliver(ours).status_code == 500
    assert (effects(), WebhookEventTrigger.objects.get().exception) == (0, "")
    assert WebhookEventTrigger.objects.get().traceback
    assert IdempotencyRecord.objects.get().status == Status.FREE
    FAILING.clear()
    assert (deliver(ours).status_code, effects()) == (200, 1)


def test_another_event_under_a_known_id(ours: WebhookEndpoint) -> None:
    """A signed event with other content is refused, and listed among the failures at Stripe."""
    assert deliver(ours).status_code == 200
    assert deliver(ours, event(amount=1)).json()["code"] == "request-mismatch"
    assert deliver(ours, b'{"livemode": false}').json()["code"] == "key-missing"
    assert effects() == 1


def test_nothing_is_found() -> None:
    """`manage.py check` finds nothing."""
    assert [
        found for found in checks.run_checks() if str(found.id).startswith("django_idempotency")
    ] == []
