"""How long a key is remembered, and what of: `Tombstones`, `on_failure="forget"`, and profiles whose
keys are an endpoint's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client, override_settings
from django.urls import path

from django_idempotency import Policy, Tombstones, idempotent, idempotent_function
from django_idempotency.contrib.publishing.by_key import IdempotencyKeyView
from django_idempotency.core.dialects import Dialect
from django_idempotency.errors import KeyExpired
from django_idempotency.models import IdempotencyRecord
from django_idempotency.testing.clock import elapse
from testproject.payments.models import Effect

from .conftest import KEY, effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


class PerEndpoint(Dialect):
    keys_per = "endpoint"
    spelling = "opaque"
    marker_member = "replayed"


DAY = 86400
derived: list[str] = []


def charge(request: HttpRequest, **_: Any) -> HttpResponse:
    amount = json.loads(request.body)["amount"]
    Effect.objects.create(label=f"{amount}")
    derived.append(request.idempotency.derive("charge"))  # type: ignore[attr-defined]
    if not amount:
        raise ValueError("nothing to charge")
    return JsonResponse({"amount": amount, "rate": 1.10}, status=201)


urlpatterns = [
    path("seen/", idempotent(ttl=DAY, extensions=[Tombstones(7 * DAY)])(charge)),
    path("seen/before/", idempotent(ttl=DAY)(charge)),
    path("forget/", idempotent(on_failure="forget")(charge)),
    path("per/<int:pk>/", idempotent(profile=PerEndpoint())(charge)),
    path("keys/<path:key>", IdempotencyKeyView.as_view(policy=Policy(profile=PerEndpoint()))),
]

Send = Callable[..., Any]


@pytest.fixture
def send(user: User) -> Send:
    client = Client(raise_request_exception=False)
    client.force_login(user)
    derived.clear()

    def send(url: str, amount: int = 5, key: str = KEY) -> Any:
        return client.post(
            url, {"amount": amount}, "application/json", headers={"Idempotency-Key": key}
        )

    return send


def code(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


# -------------------------------------------------------------------------------------- tombstones


def test_a_key_that_was_seen(send: Send) -> None:
    """After its `ttl` it is refused, whatever the body is, and runs nothing.

    After `Tombstones` it is new.
    """
    assert send("/seen/").status_code == send("/seen/").status_code == 201
    elapse(DAY)
    late = send("/seen/")
    assert code(late) == code(send("/seen/", 6)) == (412, "key-expired")
    assert late["Idempotency-Status"] == "expired"
    assert effects() == 1
    elapse(7 * DAY)
    assert send("/seen/", 6).status_code == 201
    assert effects() == 2


def test_a_response_with_a_ttl_of_its_own(user: User) -> None:
    """It is remembered for as long after that."""

    @idempotent_function(key="order", key_prefix="seen", expires_after=60)
    def pay(order: int) -> int:
        return order

    with override_settings(IDEMPOTENCY={"EXTENSIONS": [Tombstones(3600)]}):
        assert [pay(1), pay(1)] == [1, 1]
        elapse(61)
        with pytest.raises(KeyExpired):
            pay(1)
        elapse(3600)
        assert pay(1) == 1


def test_a_record_of_an_earlier_policy(send: Send) -> None:
    """Its response is replayed until its own retention ends: deploying `Tombstones` loses none."""
    assert send("/seen/").status_code == 201
    record = IdempotencyRecord.objects.get()
    IdempotencyRecord.objects.update(
        expires_at=record.expires_at - (record.expires_at - record.created_at) / 8 * 7
    )
    replay = send("/seen/")
    assert (replay.status_code, replay["Idempotent-Replayed"]) == (201, "true")


# --------------------------------------------------------------------------------------- on_failure


def test_a_failure_that_is_forgotten(send: Send) -> None:
    """What was rolled back does not bind the key to its body.

    The same request derives the same keys again.
    """
    assert [send("/forget/", amount).status_code for amount in (0, 0, 5)] == [500, 500, 201]
    assert code(send("/forget/", 6)) == (422, "request-mismatch")
    assert effects() == 1
    assert derived[0] == derived[1] != derived[2]


# ------------------------------------------------------------------------------ keys of an endpoint


def test_an_endpoint_has_keys_of_its_own(send: Send) -> None:
    """One key of a client at two paths is two keys, and each is replayed with its mark and its
    numbers as they were spelled.
    """
    assert [send("/per/1/").status_code, send("/per/2/", 6).status_code] == [201, 201]
    again = send("/per/2/", 6)
    assert again.content == b'{"amount": 6, "rate": 1.1, "replayed": true}'
    assert code(send("/per/1/", 6)) == (422, "request-mismatch")
    assert effects() == 2


def test_a_key_with_commas(send: Send) -> None:
    """A profile may take them. Elsewhere two headers that a server has joined are refused."""
    assert [
        send("/per/1/", key="a, b").status_code,
        send("/per/1/", key="a, b")["Idempotent-Replayed"],
    ] == [
        201,
        "true",
    ]
    assert code(send("/seen/", key="a, b")) == (400, "key-malformed")


def test_asking_about_a_key_of_an_endpoint(user: User, send: Send) -> None:
    """The path says which."""
    send("/per/1/")
    client = Client()
    client.force_login(user)
    assert client.get(f"/keys/{KEY}?path=/per/1/").json()["state"] == "completed"
    assert code(client.get(f"/keys/{KEY}?path=/per/2/")) == (404, "key-unknown")
    assert code(client.get(f"/keys/{KEY}")) == (400, "key-malformed")


def test_a_long_path(send: Send) -> None:
    """A path and a key that do not fit into a record's column are one key, nevertheless."""
    key = "k" * 250
    assert [
        send("/per/1/", key=key).status_code,
        send("/per/1/", key=key)["Idempotent-Replayed"],
    ] == [201, "true"]
    assert send("/per/2/", key=key).status_code == 201
    assert effects() == 2
