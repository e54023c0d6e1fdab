"""django-ninja-extra itself: a route of a controller is guarded behind its permissions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections
from django.http import HttpRequest
from django.test import Client
from django.urls import path
from ninja import Schema
from ninja.security import django_auth
from ninja.throttling import BaseThrottle
from ninja_extra import (
    ControllerBase,
    NinjaExtraAPI,
    api_controller,
    http_get,
    http_post,
    permissions,
)
from ninja_extra.throttling import throttle

from django_idempotency import idempotent
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"


class ChargeIn(Schema):
    amount: int


def work() -> int:
    return Effect.objects.create(label="extra", idempotency_key="", attempt=0).pk


class Shut(BaseThrottle):
    """Lets one request pass."""

    count = 0

    def allow_request(self, request: HttpRequest) -> bool:
        self.count += 1
        return self.count == 1


SHUT = Shut()


@api_controller("/charges", auth=django_auth, permissions=[permissions.IsAdminUser])
class Charges(ControllerBase):
    @http_get("")
    def read(self) -> dict[str, bool]:
        return {"atomic": connection.in_atomic_block}

    @http_post("/{int:shop}")
    @idempotent()
    def create(self, request: HttpRequest, shop: int, payload: ChargeIn) -> dict[str, int]:
        pk, handle = work(), request.idempotency  # type: ignore[attr-defined]
        handle.derive("bank")
        return {"id": pk, "shop": shop, "amount": payload.amount, "attempt": handle.attempt}

    @idempotent(required=True)
    @http_post("/above")
    def above(self, payload: ChargeIn) -> dict[str, int]:
        pk = work()
        if payload.amount == 500:
            raise LookupError
        return {"id": pk}

    @http_post("/async")
    @idempotent(guarantee="lease")
    async def acreate(self, payload: ChargeIn) -> dict[str, int]:
        return {"id": await sync_to_async(work)()}

    @http_post("/throttled")
    @throttle(SHUT)
    @idempotent()
    def throttled(self) -> dict[str, int]:
        return {"id": work()}

    @http_post("/unguarded")
    def unguarded(self) -> dict[str, int]:
        return {"id": work()}


@api_controller("/more", auth=django_auth)
class More(Charges):
    """Inherits the routes, but not the permissions."""


api = NinjaExtraAPI(urls_namespace="extra")
api.register_controllers(Charges, More)
urlpatterns = [path("api/", api.urls)]

ROUTES = pytest.mark.parametrize(
    "url", ["/api/charges/7", "/api/charges/above", "/api/charges/async", "/api/more/7"]
)


class Caller:
    def __init__(self) -> None:
        self.user = User.objects.create_user("extra", is_staff=True)
        self.client = Client(raise_request_exception=False)
        self.client.force_login(self.user)

    def __call__(self, url: str, amount: Any = 5, key: str | None = KEY) -> Any:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.client.post(
            url, json.dumps({"amount": amount}), content_type="application/json", headers=headers
        )


@pytest.fixture
def call() -> Caller:
    return Caller()


@ROUTES
def test_a_retry_gets_the_first_response(call: Caller, url: str) -> None:
    """There is one effect, with the same bytes; each route has its own keys, and another body is a
    mismatch.
    """
    first, retry = call(url), call(url)
    assert (first.status_code, retry.content, retry["Idempotency-Status"]) == (
        200,
        first.content,
        "replayed",
    )
    assert (Effect.objects.count(), call(url, 6).json()["code"]) == (1, "request-mismatch")


def test_the_controllers_permissions_stand_before_a_replay(call: Caller) -> None:
    """A former admin gets 403 and a logged-out one 401; invalid input claims nothing."""
    assert call("/api/charges/7", "many").status_code == 422
    assert not IdempotencyRecord.objects.exists()
    first = call("/api/charges/7")
    assert first.json() == {"id": Effect.objects.get().pk, "shop": 7, "amount": 5, "attempt": 1}
    User.objects.update(is_staff=False)
    refused = call("/api/charges/7")
    assert (refused.status_code, refused["Idempotency-Status"]) == (403, "refused")
    call.client.logout()
    assert (call("/api/charges/7").status_code, Effect.objects.count()) == (401, 1)


def test_a_mark_of_another_decorator_stays(call: Caller) -> None:
    """A route's throttle also throttles its retry."""
    assert [call("/api/charges/throttled").status_code for _ in range(2)] == [200, 429]


def test_only_guarded_routes_are_guarded(call: Caller) -> None:
    """`required` is enforced, and a route without the decorator says that it is unguarded."""
    assert call("/api/charges/above", key=None).json()["code"] == "key-missing"
    assert call("/api/charges/unguarded")["Idempotency-Status"] == "unguarded"


def test_under_atomic_requests(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure rolls back with and without a key, and the other routes keep their transaction."""
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    for key in (KEY, "another"):
        assert (call("/api/charges/above", 500, key=key).status_code, Effect.objects.count()) == (
            500,
            0,
        )
    # Nothing can be derived without a key: rolled back.
    assert call("/api/charges/7", key=None).status_code == 500
    assert Effect.objects.count() == 0
    assert call.client.get("/api/charges").json() == {"atomic": True}


def test_an_async_method_cannot_be_atomic() -> None:
    """No transaction can span an await: the error says what to type, at import."""
    with pytest.raises(ImproperlyConfigured, match=r'guarantee="lease"'):

        @api_controller("/wrong")
        class Wrong(ControllerBase):
            @http_post("")
            @idempotent()
            async def wrong(self) -> None: ...
