"""A signed webhook: verified before the claim, handled once, and its response makes the sender stop
or retry.
"""

from __future__ import annotations

import json
import logging
import time
from contextvars import Context
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from standardwebhooks import Webhook

from django_idempotency.models import IdempotencyRecord
from testproject.payments import webhooks, work
from testproject.payments.models import Charge, Effect

pytestmark = pytest.mark.django_db

OTHERS = "whsec_c29tZWJvZHkgZWxzZSdzIHNlY3JldA=="
LONG_AGO = timedelta(minutes=6)


@pytest.fixture
def event(user: User) -> dict[str, Any]:
    return {
        "type": "order.confirmed",
        "timestamp": "2026-01-01T00:00:00Z",
        "data": {"user_id": user.pk, "amount": 2499, "currency": "eur", "card": "tok_visa"},
    }


def signed(
    event: Any, message_id: str = "msg_1", *, secret: str = "", age: timedelta = timedelta()
) -> dict[str, Any]:
    """Return the arguments of Client.post(): an event signed as a sender of Standard Webhooks
    does.
    """
    sent, body = datetime.now(timezone.utc) - age, json.dumps(event)
    signature = Webhook(secret or settings.WEBHOOK_SECRET).sign(message_id, sent, body)
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(sent.timestamp())),
        "webhook-signature": signature,
    }
    return {"data": body, "content_type": "application/json", "headers": headers}


def post(request: dict[str, Any]) -> HttpResponse:
    return Client(raise_request_exception=False).post("/webhook/", **request)  # type: ignore[return-value]


def test_once(event: dict[str, Any]) -> None:
    """A duplicate gets 2xx, so that the sender stops; it has a timestamp of its own."""
    answers = [post(signed(event, age=timedelta(seconds=age))) for age in (20, 10, 0)]
    assert [answer.status_code for answer in answers] == [204, 204, 204]
    assert Effect.objects.get().attempt == 1
    assert Charge.objects.count() == 1


def test_another_message(event: dict[str, Any]) -> None:
    """The id decides, not the content."""
    for number in range(2):
        assert post(signed(event, f"msg_{number}")).status_code == 204
    assert Charge.objects.count() == 2


def test_two_senders_with_one_id(event: dict[str, Any]) -> None:
    """An id is unique for its sender only: each endpoint has keys of its own."""
    other = {**event, "data": {**event["data"], "amount": 100}}
    answers = [
        webhooks.received(*each).status_code
        for each in (("/a/", "msg_1", event), ("/b/", "msg_1", other))
    ]
    assert answers == [204, 204]
    assert Charge.objects.count() == 2


def test_an_event_without_a_handler(event: dict[str, Any]) -> None:
    """An event without a handler is finished."""
    assert post(signed({**event, "type": "order.seen"})).status_code == 204
    assert not Effect.objects.exists()


def tampered(request: dict[str, Any]) -> dict[str, Any]:
    return {**request, "data": request["data"].replace("2499", "9999")}


def without(request: dict[str, Any], header: str) -> dict[str, Any]:
    return {
        **request,
        "headers": {name: value for name, value in request["headers"].items() if name != header},
    }


def replaced(request: dict[str, Any], header: str, value: str) -> dict[str, Any]:
    return {**request, "headers": {**request["headers"], header: value}}


@pytest.mark.parametrize(
    "forge",
    [
        lambda event: signed(event, secret=OTHERS),
        lambda event: tampered(signed(event)),
        lambda event: signed(event, age=LONG_AGO),
        lambda event: signed(event, age=-LONG_AGO),  # from the future
        lambda event: replaced(
            signed(event, age=LONG_AGO), "webhook-timestamp", str(int(time.time()))
        ),
        lambda event: replaced(signed(event), "webhook-id", "msg_2"),
        lambda event: replaced(signed(event), "webhook-signature", "v1"),
        lambda event: replaced(signed(event), "webhook-signature", "v1,§§§"),
        lambda event: replaced(signed(event), "webhook-signature", "v1,abc"),  # not base64
        *(
            lambda event, header=header: without(signed(event), f"webhook-{header}")
            for header in ("id", "timestamp", "signature")
        ),
    ],
    ids=[
        "secret",
        "body",
        "old",
        "new",
        "redated",
        "id",
        "no comma",
        "not ascii",
        "not base64",
        "-id",
        "-time",
        "-sign",
    ],
)
def test_forged(event: dict[str, Any], forge: Any) -> None:
    """A forged event is refused, and nothing is claimed: without the secret, no id can be
    blocked.
    """
    assert post(forge(event)).status_code == 400
    assert not IdempotencyRecord.objects.exists()
    assert not Effect.objects.exists()
    assert post(signed(event)).status_code == 204
    assert Effect.objects.get().attempt == 1


def test_signed_but_no_json() -> None:
    """It would be as unreadable the next time: 400, and nothing is claimed."""
    request = signed({})
    body = "not json"
    request["headers"]["webhook-signature"] = Webhook(settings.WEBHOOK_SECRET).sign(
        "msg_1", datetime.now(timezone.utc), body
    )
    assert post({**request, "data": body}).status_code == 400
    assert not IdempotencyRecord.objects.exists()


def test_busy(event: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first copy runs, the second is sent away to come back later; then it is a
    duplicate.
    """
    meanwhile: list[HttpResponse] = []
    charge = work.charge

    def charge_and_look(**fields: Any) -> Any:
        # As in another worker: not inside this call.
        meanwhile.append(Context().run(post, signed(event)))
        return charge(**fields)

    monkeypatch.setattr(work, "charge", charge_and_look)
    assert post(signed(event)).status_code == 204
    assert [(answer.status_code, answer.headers["Retry-After"]) for answer in meanwhile] == [
        (503, "1")
    ]
    assert post(signed(event)).status_code == 204
    assert len(meanwhile) == Charge.objects.count() == 1


def test_mismatch(event: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Another message under a known id is not handled: the response does not claim that it was; the
    log says why.
    """
    post(signed(event))
    event["data"]["amount"] = 9999
    with caplog.at_level(logging.ERROR, logger="testproject"):
        assert post(signed(event)).status_code == 422
    assert "msg_1 was not carried out" in caplog.text
    assert Charge.objects.get().amount == 2499


def test_what_may_change(event: dict[str, Any]) -> None:
    """What the sender says about the delivery may change, and so may the order of the content."""
    post(signed(event))
    again = {"attempt": 2, **dict(reversed(event.items())), "timestamp": "2026-01-01T00:05:00Z"}
    assert post(signed(again)).status_code == 204
    assert Charge.objects.count() == 1


def test_a_failure(event: dict[str, Any]) -> None:
    """The handler's own error is a 500, as in any view, and the sender's next try is attempt 2."""
    card = {**event, "data": {**event["data"], "card": "tok_down"}}
    assert post(signed(card)).status_code == 500
    assert not Effect.objects.exists()
    assert post(signed(card)).status_code == 500
    assert IdempotencyRecord.objects.get().attempt == 2


def test_a_refusal(event: dict[str, Any]) -> None:
    """A declined card is a result: a retry would change nothing."""
    event["data"]["card"] = "tok_declined"
    assert [post(signed(event)).status_code for _ in range(2)] == [204, 204]
    assert not Charge.objects.exists()


def test_an_idempotency_key_besides(event: dict[str, Any]) -> None:
    """The header is ignored: the id is the key."""
    request = signed(event)
    request["headers"]["Idempotency-Key"] = "another-key"
    assert post(request).status_code == 204
    assert IdempotencyRecord.objects.get().method == "CALL"
