"""Views that take MCP's JSON-RPC, as packages write them: plain, async, and of REST framework."""

from __future__ import annotations

import json
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from rest_framework.views import APIView

from django_idempotency.contrib.tools import idempotent_tool_calls
from testproject.payments.models import Effect


class Broken(Exception):
    """The server fails."""


def answer(message: dict[str, Any]) -> HttpResponse:
    """Respond to a message, as a server does that knows nothing of keys."""
    if message["method"] != "tools/call":
        return JsonResponse(
            {"jsonrpc": "2.0", "id": message["id"], "result": {"method": message["method"]}}
        )
    params = message["params"]
    arguments = params["arguments"]
    if arguments.get("ask") and "inputResponses" not in params:
        return JsonResponse(
            {
                "jsonrpc": "2.0",
                "id": message["id"],
                "result": {"resultType": "input_required", "requestState": "s"},
            }
        )
    made = Effect.objects.create(label=params["name"], attempt=0)
    if arguments.get("break"):
        raise Broken
    if arguments.get("refuse") == "error":
        return JsonResponse(
            {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32603, "message": "No."}}
        )
    result = {
        "content": [{"type": "text", "text": str(made.pk)}],
        "structuredContent": {"id": made.pk, "rate": 1.10},
    }
    envelope = {
        "jsonrpc": "2.0",
        "id": message["id"],
        "result": {**result, "_meta": {"trace": "first"}},
    }
    if arguments.get("null"):
        envelope["error"] = None
    if arguments.get("refuse"):
        envelope["result"]["isError"] = True
    if arguments.get("stream"):
        return StreamingHttpResponse(
            [f"data: {json.dumps(envelope)}\n\n"], content_type="text/event-stream"
        )  # type: ignore[return-value]
    if arguments.get("events"):
        events = f"event: message\r\ndata: {json.dumps(envelope)}\r\n\r\n"
        return HttpResponse(events, content_type="text/event-stream")
    return JsonResponse(envelope)


@csrf_exempt
@idempotent_tool_calls(required=True, tools=["charge", "refund"])
def plain(request: HttpRequest) -> HttpResponse:
    return answer(json.loads(request.body))


@csrf_exempt
@idempotent_tool_calls()
def ignoring(request: HttpRequest) -> HttpResponse:
    """Respond as to a request for a stream of events."""
    return HttpResponse("", content_type="text/event-stream")


@csrf_exempt
@idempotent_tool_calls()
def tagged(request: HttpRequest) -> HttpResponse:
    """Say what is true of these bytes."""
    response = answer(json.loads(request.body))
    for name in ("ETag", "Content-Digest", "X-Kept"):
        response[name] = '"first"'
    return response


@csrf_exempt
@idempotent_tool_calls(guarantee="lease", argument="request_id")
async def asynchronous(request: HttpRequest) -> HttpResponse:
    return await sync_to_async(answer)(json.loads(request.body))


class Rest(APIView):
    def post(self, request: Any) -> HttpResponse:
        return answer(request.data)

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse(status=405)


urlpatterns = [
    path("plain", plain),
    path("ignoring", ignoring),
    path("tagged", tagged),
    path("async", asynchronous),
    path("rest", idempotent_tool_calls(required=True)(Rest.as_view())),
]
