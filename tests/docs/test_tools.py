"""The page of tools: its server runs, its view guards, and it has every word and every option."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import JsonResponse
from django.test import RequestFactory

pytest.importorskip("mcp")

from asgiref.sync import async_to_sync

from django_idempotency.contrib.tools import idempotent_tool
from testproject.payments.models import Effect

from .pages import DOCS, blocks, code, table

PAGE = "how-to/tools-and-agents.md"
AGENT, SERVER, VIEW, _GRPC = (
    block.code for block in blocks(DOCS / PAGE) if block.language == "python"
)


def test_every_option() -> None:
    """The page has the decorator's own."""
    taken = [each.name for each in inspect.signature(idempotent_tool).parameters.values()]
    assert [code(row[0]) for row in table(PAGE, "| option | for |")] == [
        name for name in taken if name != "terms"
    ]


@pytest.mark.any_database
@pytest.mark.django_db(transaction=True)
def test_the_server() -> None:
    """The tool of the page publishes its hints, and refuses a call without a key."""
    from mcp import Client as Agent

    page: dict[str, Any] = {"__name__": "shop.tools"}
    exec(SERVER, page)

    async def run() -> tuple[Any, Any]:
        async with Agent(page["server"]) as session:
            (tool,) = (await session.list_tools()).tools
            return tool.annotations, await session.call_tool("charge", {"order": 7})

    annotations, refused = async_to_sync(run)()
    assert (annotations.idempotent_hint, annotations.destructive_hint) == (True, True)
    assert (refused.structured_content["code"], refused.structured_content["retry"]) == (
        "key-missing",
        "new-key",
    )
    assert not Effect.objects.exists()


@pytest.mark.any_database
@pytest.mark.django_db(transaction=True)
def test_the_view(user: User) -> None:
    """The view of the page has the package's server called once."""
    called = []

    def server(request: Any) -> Any:
        called.append(request)
        return JsonResponse({"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": {}})

    page: dict[str, Any] = {"server": server, "__name__": "shop.views"}
    exec(VIEW, page)
    for number in (1, 2):
        params = {"name": "charge", "arguments": {}, "_meta": {"idempotency-key": "k-1"}}
        body = json.dumps(
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        )
        request = RequestFactory().post("/mcp", body, content_type="application/json")
        request.user = user
        assert json.loads(page["mcp"](request).content)["id"] == number
    assert len(called) == 1
