"""The seller: tools over MCP, each of which is a view of AdCP's own binding.

What may be repeated is guarded there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import RequestFactory
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from django_idempotency import OnReplay, idempotent
from django_idempotency.contrib.dialects.commerce import ADCP_EXCLUDED, Adcp, adcp_replay
from django_idempotency.contrib.fingerprints.json import json_body
from django_idempotency.contrib.limits import FreshKeys

from .models import MediaBuy

#: How long a response is replayed (seconds), as the seller declares it.
TTL = 86400
PROTOCOL = "2025-06-18"


#: Those of docs/how-to/keys.md, with a rate that 200 requests exceed.
RULES: dict[str, Any] = {
    "profile": Adcp(),
    "ttl": TTL,
    "scope": lambda request: request.headers.get("Authorization"),
    "fingerprint": json_body(exclude=ADCP_EXCLUDED, numbers="rfc8785"),
    "on_failure": "forget",
    "extensions": [OnReplay(adcp_replay), FreshKeys("100/5s")],
}


class Reading(Adcp):
    """Speaks as AdCP does of a tool that only reads: its key is optional."""

    requires_key = False


def answered(asked: Mapping[str, Any], body: Mapping[str, Any], status: int = 200) -> JsonResponse:
    context = {"context": asked["context"]} if "context" in asked else {}
    return JsonResponse({**body, **context}, status=status)


def get_adcp_capabilities(request: HttpRequest) -> HttpResponse:
    """Say what the seller does, among it for how long it replays."""
    body = {
        "adcp": {
            "major_versions": [3],
            "idempotency": {"supported": True, "replay_ttl_seconds": TTL},
        },
        "supported_protocols": ["media_buy"],
        "account": {"supported_billing": ["operator"], "sandbox": True},
    }
    return answered(json.loads(request.body), body)


@idempotent(**{**RULES, "profile": Reading()})
def get_products(request: HttpRequest) -> HttpResponse:
    """Find nothing. The tool only reads, so its key is optional."""
    return answered(json.loads(request.body), {"products": []})


@idempotent(**RULES, required=True)
def create_media_buy(request: HttpRequest) -> HttpResponse:
    """Buy, unless a package costs nothing: then nothing of it stays."""
    asked = json.loads(request.body)
    with transaction.atomic():
        bought = MediaBuy.objects.create(packages=asked["packages"])
        if not all(package["budget"] for package in asked["packages"]):
            transaction.set_rollback(True)
            error = {
                "code": "BUDGET_TOO_LOW",
                "message": "A package costs more.",
                "recovery": "correctable",
            }
            return answered(asked, {"adcp_error": error, "errors": [error]}, 400)
    return answered(
        asked, {"media_buy_id": str(bought), "packages": packages(bought), "status": "active"}
    )


def get_media_buys(request: HttpRequest) -> HttpResponse:
    """Return what was bought: all of it, or what is asked for."""
    asked = json.loads(request.body)
    found = [
        each
        for each in MediaBuy.objects.order_by("pk")
        if str(each) in asked.get("media_buy_ids", [str(each)])
    ]
    bought = [
        {
            "media_buy_id": str(each),
            "status": "active",
            "currency": "USD",
            "total_budget": sum(package["budget"] for package in each.packages),
            "packages": packages(each),
        }
        for each in found
    ]
    return answered(asked, {"media_buys": bought})


def packages(bought: MediaBuy) -> list[dict[str, Any]]:
    return [
        {"package_id": f"{bought}_{number}", **each} for number, each in enumerate(bought.packages)
    ]


TOOLS: dict[str, Callable[[HttpRequest], HttpResponse]] = {
    "get_adcp_capabilities": get_adcp_capabilities,
    "get_products": get_products,
    "create_media_buy": create_media_buy,
    "get_media_buys": get_media_buys,
}


def initialize(_: HttpRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": PROTOCOL,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "a seller", "version": "1"},
    }


def list_tools(_: HttpRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}


def call_tool(request: HttpRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Hand a call to its view, and its response back: AdCP's body is the structured content."""
    name, given = params["name"], json.dumps(params.get("arguments", {}))
    headers = {"Authorization": request.headers.get("Authorization", "")}
    response = TOOLS[name](
        RequestFactory().post(f"/{name}", given, content_type="application/json", headers=headers)
    )
    text = response.content.decode()
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": json.loads(text),
        "isError": response.status_code >= 400,
    }


METHODS = {"initialize": initialize, "tools/list": list_tools, "tools/call": call_tool}


@csrf_exempt
@require_POST
def mcp(request: HttpRequest) -> HttpResponse:
    """Take MCP's messages, each in a request of its own."""
    message = json.loads(request.body)
    if "id" not in message:
        return HttpResponse(status=202)
    if (method := METHODS.get(message["method"])) is None:
        error = {"code": -32601, "message": "Method not found"}
        return JsonResponse({"jsonrpc": "2.0", "id": message["id"], "error": error})
    return JsonResponse(
        {
            "jsonrpc": "2.0",
            "id": message["id"],
            "result": method(request, message.get("params", {})),
        }
    )


urlpatterns = [path("mcp", mcp)]
