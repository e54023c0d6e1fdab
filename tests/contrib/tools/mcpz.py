"""A server of django-mcpz, as a project writes it."""

import msgspec
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django_mcpz.server import MCPServer, elicit, public

from django_idempotency.contrib.tools import idempotent_tool_calls
from testproject.payments.models import Effect

server = MCPServer(name="shop", version="1", auth=public)


class Charge(msgspec.Struct):
    amount: int


class Charged(msgspec.Struct):
    id: int


class Sure(msgspec.Struct):
    sure: bool


@server.tool(description="Charge a card.", idempotent=True)
def charge(request: HttpRequest, params: Charge) -> Charged:
    return Charged(Effect.objects.create(label="tool", attempt=0).pk)


@server.tool(description="Charge a card, if that is meant.", idempotent=True)
def charge_if(request: HttpRequest, params: Charge) -> Charged:
    elicit(request, "Do you mean it?", Sure)
    made: Charged = charge(request, params)
    return made


@csrf_exempt
@idempotent_tool_calls(required=True, scope=lambda request: request.headers.get("User-Agent"))
def mcp(request: HttpRequest) -> HttpResponse:
    return server(request)


urlpatterns = [path("mcp", mcp)]
