"""Accidents on the way: a stream that breaks after the effect, and a worker that is killed in
it.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection

pytest.importorskip("mcp")

import uvicorn
from mcp import MCPError, StdioServerParameters

from testproject.payments.models import Effect

from .servers import KEY, PAUSE, Shop, called, client

pytestmark = [pytest.mark.slow, pytest.mark.either_server, pytest.mark.django_db(transaction=True)]

META = {"agent": "ada", "idempotency-key": KEY}


@contextmanager
def served(shop: Shop) -> Iterator[str]:
    """Serve a shop over HTTP, and yield its address."""
    app = shop.server.streamable_http_app() if shop.sdk == "mcp" else shop.server.http_app()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            while thread.is_alive() and not server.started:
                time.sleep(PAUSE)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            shop.held.clear()
            server.should_exit = True
            thread.join()


@pytest.mark.parametrize("sdk", ["mcp", "fastmcp"])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_stream_breaks_after_the_effect(sdk: str, kind: str) -> None:
    """The client calls again, under a new id: it gets "same-key" while the first call runs, and
    then its result.
    """
    pytest.importorskip(sdk)
    shop = Shop(sdk, is_async=kind == "async", guarantee="lease")
    shop.held.set()
    options: dict[str, Any] = {"read_timeout_seconds": 1} if sdk == "mcp" else {"timeout": 1}

    async def run(address: str) -> tuple[Any, Any]:
        async with client(sdk, address, **options) as impatient:
            with pytest.raises(MCPError):
                await called(impatient, sdk, "charge", {"amount": 1}, META)
        assert shop.done.is_set()
        async with client(sdk, address) as session:
            waiting = await called(session, sdk, "charge", {"amount": 1}, META)
            shop.held.clear()
            answer = waiting
            while answer.is_error and answer.said == ("in-progress", "same-key"):
                answer = await called(session, sdk, "charge", {"amount": 1}, META)
            return waiting, answer

    with served(shop) as address:
        waiting, answer = async_to_sync(run)(address)
    assert waiting.said == ("in-progress", "same-key")
    assert (answer.content["id"], answer.replayed) == (Effect.objects.get(label="tool").pk, True)


def test_a_worker_is_killed() -> None:
    """What it wrote is rolled back: the retry runs as attempt 2, and there is one effect."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "DATABASE_NAME": str(connection.settings_dict["NAME"]),
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
    }
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "tests.contrib.tools.stdio"], env=environment
    )

    async def call(session: Any) -> Any:
        return await called(session, "mcp", "charge", {"amount": 1}, {"idempotency-key": KEY})

    async def broken_off() -> None:
        async with client("mcp", program, read_timeout_seconds=60) as session:
            with pytest.raises(MCPError):
                await call(session)

    async def retried() -> tuple[Any, Any]:
        """Call while it is to be repeated, and once more."""
        async with client("mcp", program, read_timeout_seconds=60) as session:
            answer = await call(session)
            while answer.is_error and answer.said == ("in-progress", "same-key"):
                answer = await call(session)
            return answer, await call(session)

    async_to_sync(broken_off)()
    assert not Effect.objects.filter(label="tool").exists()
    answer, again = async_to_sync(retried)()
    made = Effect.objects.get(label="tool")
    assert (answer.content["id"], answer.replayed, made.attempt) == (made.pk, False, 2)
    assert again == answer._replace(replayed=True)
