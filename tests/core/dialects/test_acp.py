"""What the Agentic Commerce Protocol publishes of keys, against a view with the docs' policy.

Facts of repository agentic-commerce-protocol/agentic-commerce-protocol at
c2afc863b46b6bb64fbc2be969bff25ee6eab652: `rfcs/rfc.agentic_checkout.md`, section 6, and the bodies
of `examples/2026-04-17/examples.agentic_checkout.json`, shortened.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path

from django_idempotency import idempotent
from django_idempotency.contrib.dialects import Acp
from django_idempotency.contrib.fingerprints.json import json_body
from django_idempotency.testing.clock import elapse
from testproject.payments.models import Effect

pytest.importorskip("rfc8785")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.any_database,
]

SESSIONS = "/checkout_sessions"
#: Where each request of the examples goes, and its body.
REQUESTS = {
    "create": (SESSIONS, {"currency": "usd", "line_items": [{"id": "item_123"}]}),
    "update": (
        f"{SESSIONS}/checkout_session_123",
        {
            "selected_fulfillment_options": [
                {"type": "shipping", "option_id": "fulfillment_option_456"}
            ]
        },
    ),
    "complete": (
        f"{SESSIONS}/checkout_session_123/complete",
        {
            "payment_data": {
                "handler_id": "card_tokenized",
                "instrument": {"credential": {"token": "spt_123"}},
            }
        },
    ),
    "cancel": (
        f"{SESSIONS}/checkout_session_123/cancel",
        {"intent_trace": {"reason_code": "shipping_cost"}},
    ),
}
KEY = "550e8400-e29b-41d4-a716-446655440000"


class Seller:
    """Responds to each request with the next of `statuses`, or 201, and counts its effects in the
    database.
    """

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.meanwhile: Callable[[], Any] | None = None
        self.inside: Any = None

    def respond(self, request: HttpRequest) -> HttpResponse:
        effect = Effect.objects.create(label=request.path)
        if self.meanwhile is not None:
            again, self.meanwhile = self.meanwhile, None
            self.inside = again()
        return JsonResponse(
            {"id": effect.pk}, status=self.statuses.pop(0) if self.statuses else 201
        )

    def send(
        self, name: str = "create", key: str | None = KEY, body: Any = None, **headers: str
    ) -> Any:
        where, published = REQUESTS[name]
        sent = body if isinstance(body, str) else json.dumps(published if body is None else body)
        headers = {
            "Authorization": "Bearer api_key_123",
            **headers,
            **({} if key is None else {"Idempotency-Key": key}),
        }
        return Client(raise_request_exception=False).post(
            where, sent, "application/json", headers=headers
        )


seller = Seller()


@idempotent(
    profile=Acp(),
    required=True,
    fingerprint=json_body(numbers="rfc8785"),
    on_failure="forget",
    scope=lambda request: request.headers["Authorization"],
)
def checkout(request: HttpRequest, **_: Any) -> HttpResponse:
    return seller.respond(request)


urlpatterns = [path("checkout_sessions", checkout), path("checkout_sessions/<path:rest>", checkout)]


@pytest.fixture(autouse=True)
def new_seller() -> None:
    seller.__init__()  # type: ignore[misc]


def effects() -> int:
    return Effect.objects.count()


def refusal(response: Any) -> tuple[int, str, str]:
    body = response.json()
    # The schema of an error allows no others that we could add.
    assert sorted(body) == [
        "code",
        "message",
        "type",
    ]
    return response.status_code, body["type"], body["code"]


@pytest.mark.parametrize("name", REQUESTS)
def test_the_requests_of_the_examples(name: str) -> None:
    """6.3: sent twice, each gets the original response and status, marked, with its key; one
    effect.
    """
    first, again = seller.send(name), seller.send(name)
    assert (first.status_code, again.status_code, first.content) == (201, 201, again.content)
    assert ("Idempotent-Replayed" in first, again["Idempotent-Replayed"]) == (False, "true")
    assert (first["Idempotency-Key"], again["Idempotency-Key"], effects()) == (KEY, KEY, 1)


@pytest.mark.parametrize("status", [400, 404, 409, 412])
def test_a_refusal_is_the_original_response(status: int) -> None:
    """6.3, 6.4: the seller's own refusal is replayed as well, and its key refuses another body."""
    seller.statuses = [status]
    first, again = seller.send(), seller.send()
    assert (first.status_code, again.status_code, first.content) == (status, status, again.content)
    assert (again["Idempotent-Replayed"], effects()) == ("true", 1)
    assert refusal(seller.send(body={"currency": "eur"})) == (
        422,
        "invalid_request",
        "idempotency_conflict",
    )


def test_the_errors_of_the_examples() -> None:
    """6.4: `error_400_idempotency_key_required`, `error_422_idempotency_conflict`,
    `error_409_idempotency_in_flight`.
    """
    assert refusal(seller.send(key=None)) == (400, "invalid_request", "idempotency_key_required")
    seller.meanwhile = seller.send
    seller.send()
    assert refusal(seller.inside) == (409, "invalid_request", "idempotency_in_flight")
    assert int(seller.inside["Retry-After"]) >= 1
    conflict = seller.send(body={"currency": "eur"})
    assert refusal(conflict) == (422, "invalid_request", "idempotency_conflict")
    assert (seller.inside["Idempotency-Key"], conflict["Idempotency-Key"], effects()) == (
        KEY,
        KEY,
        1,
    )


def test_whose_a_key_is() -> None:
    """6.1: of an identity and an endpoint's path; one key is each time another elsewhere."""
    for name in REQUESTS:
        seller.send(name)
    assert effects() == 4
    seller.send(Authorization="Bearer of another")
    assert effects() == 5


@pytest.mark.parametrize("key", ["k" * 255, "a, b", '"quoted"', "550e8400E29B"])
def test_a_key_is_opaque(key: str) -> None:
    """6.1: any text of at most 255 characters."""
    assert [seller.send(key=key).status_code for _ in range(2)] == [201, 201]
    assert (effects(), seller.send(key="k" * 256).status_code) == (1, 400)


@pytest.mark.parametrize(
    ("first", "second", "equivalent"),
    [
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', True),
        ('{"a": 1.0}', '{"a":1}', True),
        ('{"a": null}', "{}", False),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
    ],
)
def test_equivalence(first: str, second: str, equivalent: bool) -> None:
    """6.2: the value of the JSON counts, and not how it is spelled."""
    seller.send(body=first)
    assert seller.send(body=second).status_code == (201 if equivalent else 422)
    assert effects() == 1


def test_headers_do_not_count() -> None:
    """6.2: the same body with other headers is the same request."""
    seller.send(**{"Request-Id": "1", "Timestamp": "2026-04-17T10:30:00Z"})
    again = seller.send(
        **{"Request-Id": "2", "Timestamp": "2026-04-17T10:31:00Z", "User-Agent": "ChatGPT/2.0"}
    )
    assert (again["Idempotent-Replayed"], effects()) == ("true", 1)


@pytest.mark.parametrize(
    "content_type",
    ["application/json; charset=utf-8", "application/vnd.acp+json", "text/plain", ""],
)
@pytest.mark.parametrize("query", ["", "?locale=en"])
def test_neither_content_type_nor_query_counts(content_type: str, query: str) -> None:
    """6.2: "semantic JSON equality of the request body only; headers are excluded"."""
    seller.send()
    where, body = REQUESTS["create"]
    headers = {"Authorization": "Bearer api_key_123", "Idempotency-Key": KEY}
    again = Client().generic(
        "POST", where + query, json.dumps(body, indent=1), content_type, headers=headers
    )
    assert (again.status_code, again.get("Idempotent-Replayed"), effects()) == (201, "true", 1)


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_error_is_not_cached(status: int) -> None:
    """6.5: after it the key is as new, for another body, too, and nothing has happened."""
    seller.statuses = [status]
    assert (seller.send().status_code, effects()) == (status, 0)
    assert (seller.send(body={"currency": "eur"}).status_code, effects()) == (201, 1)


def test_after_its_retention() -> None:
    """6.6: it is kept for 24 hours, and is a new request then."""
    seller.send()
    elapse(86400 - 2)
    assert (seller.send()["Idempotent-Replayed"], effects()) == ("true", 1)
    elapse(4)
    assert (seller.send(body={"currency": "eur"}).status_code, effects()) == (201, 2)
