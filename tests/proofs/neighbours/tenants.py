"""A shop of several tenants: one view, and the stores that it may use."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path

from django_idempotency import idempotent
from django_idempotency.http.plan import ANY_POLICY, plan_of
from django_idempotency.scopes import public
from testproject.payments.models import Effect

STORES = "django_idempotency.stores"
FRONTS = ("no front", "local_cache", "redis")
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"


def behind(front: str) -> dict[str, Any]:
    """Return STORES: records in one database, behind a front."""
    orm = {"BACKEND": f"{STORES}.orm.ORMStore", "OPTIONS": {"local_cache": front == "local_cache"}}
    if front != "redis":
        return {"default": orm}
    return {
        "default": {
            "BACKEND": f"{STORES}.layered.LayeredStore",
            "OPTIONS": {"front": "redis", "authority": "orm"},
        },
        "orm": orm,
        "redis": {"BACKEND": f"{STORES}.redis.RedisStore", "OPTIONS": {"prefix": uuid4().hex}},
    }


def charged(request: HttpRequest) -> HttpResponse:
    host = request.get_host()
    Effect.objects.create(
        label=host, idempotency_key=plan_of(ANY_POLICY).read_key(request.META) or ""
    )
    return JsonResponse({"iban": f"that of {request.user.pk or 'a guest'} of {host}"}, status=201)


pay = idempotent()(charged)
order = idempotent(key="body.order", required=True)(charged)
guest = idempotent(scope=public(lambda request: "checkout"))(charged)

urlpatterns = [path("pay/", pay), path("order/", order), path("guest/", guest)]


def send(client: Client, where: str, to: str) -> tuple[str, bool]:
    """Send the same request as always; return the response, and whether it is a replay."""
    headers = {"Host": to, **({} if where == "order" else {"Idempotency-Key": KEY})}
    response = client.post(
        f"/{where}/", '{"order": 17}', content_type="application/json", headers=headers
    )
    assert response.status_code == 201, response.content
    return response.json()[
        "iban"
    ], "Idempotent-Replayed" in response or "Idempotent-Replayed" in response
