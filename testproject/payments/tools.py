"""A tool for agents, over MCP's JSON-RPC.

A project would take it from a package; here it is short enough to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.decorators import api_view
from rest_framework.response import Response

from django_idempotency.contrib.tools import idempotent_tool_calls

from .serializers import ChargeSerializer
from .work import Attempt

if TYPE_CHECKING:
    from rest_framework.request import Request


@idempotent_tool_calls(required=True)
@api_view(["POST"])
def mcp(request: Request) -> Response:
    """Call the tool `charge`: the key is in the call's `_meta`."""
    message: Any = request.data
    serializer = ChargeSerializer(data=message["params"]["arguments"])
    serializer.is_valid(raise_exception=True)
    serializer.save(user_id=request.user.pk, attempt=Attempt.of(request))
    result = {
        "content": [{"type": "text", "text": "Charged."}],
        "structuredContent": serializer.data,
    }
    return Response({"jsonrpc": "2.0", "id": message["id"], "result": result})
