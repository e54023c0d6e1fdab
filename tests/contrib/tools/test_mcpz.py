"""The guarded view of another package, called by the client of the official SDK over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from pytest_django.live_server_helper import LiveServer

pytest.importorskip("mcp")
pytest.importorskip("django_mcpz")

from mcp import Client
from mcp.types import ElicitResult

from testproject.payments.models import Effect

from .servers import KEY, called

pytestmark = [
    pytest.mark.slow,
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.contrib.tools.mcpz"),
]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_once(live_server: LiveServer, mode: Any) -> None:
    """The SDK's client understands replays and problems, in the protocol of 2026-07-28 and before
    it.
    """

    async def run() -> tuple[Any, ...]:
        async with Client(f"{live_server.url}/mcp", mode=mode) as client:
            keys = {"idempotency-key": KEY}
            given = [(1, keys), (1, keys), (2, keys), (1, {})]
            return tuple(
                [
                    await called(client, "mcp", "charge", {"amount": each}, meta)
                    for each, meta in given
                ]
            )

    first, again, other, keyless = async_to_sync(run)()
    assert (first.content, first.replayed) == ({"id": Effect.objects.get(label="tool").pk}, False)
    assert again == first._replace(replayed=True)
    assert (other.said, keyless.said) == (
        ("request-mismatch", "look-first"),
        ("key-missing", "new-key"),
    )


def test_a_question_to_the_client(live_server: LiveServer) -> None:
    """The SDK calls again with the answer, under the same key; a repetition is one question
    less.
    """
    asked = []

    async def agree(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"sure": True})

    async def run() -> list[Any]:
        async with Client(f"{live_server.url}/mcp", elicitation_callback=agree) as client:
            call = ("mcp", "charge_if", {"amount": 1}, {"idempotency-key": KEY})
            return [await called(client, *call) for _ in range(2)]

    first, again = async_to_sync(run)()
    assert again == first._replace(replayed=True)
    assert (asked, Effect.objects.filter(label="tool").count()) == (["Do you mean it?"], 1)
