"""A server of each SDK with one guarded tool, and an agent that calls it.

Annotations are objects here: a tool is local.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync, sync_to_async

from django_idempotency import current_operation
from django_idempotency.contrib.tools import idempotent_tool
from testproject.payments.models import Effect

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"

PAUSE = 0.01


class Declined(Exception):
    """An exception of the tool's own."""


def write(amount: int) -> dict[str, int]:
    """Have the effect that must happen once."""
    if amount < 0:
        raise Declined
    current = current_operation()
    made = Effect.objects.create(label="tool", attempt=0 if current is None else current.attempt)
    return {"id": made.pk, "amount": amount}


def agent_of(context: Any) -> Any:
    """Name the caller: in these tests an agent says who it is, and nobody checks."""
    return context.request_context.meta.get("agent")


async def polled(check: Callable[[], bool]) -> None:
    """Wait for something that happens in another thread."""
    while not check():  # noqa: ASYNC110 - asyncio's events are for one event loop
        await asyncio.sleep(PAUSE)


class Answer(NamedTuple):
    """The result of a call, as its client sees it."""

    content: Any
    is_error: bool
    replayed: bool

    @property
    def said(self) -> tuple[str, str]:
        """The code of a problem, and what to do about it."""
        assert self.is_error
        return self.content["code"], self.content["retry"]


class Shop:
    """A server of an SDK, with the tools `charge` and `refund`, which do the same."""

    def __init__(
        self, sdk: str, *, is_async: bool = False, work: Callable[[int], Any] = write, **terms: Any
    ) -> None:
        package = import_module("mcp.server.mcpserver" if sdk == "mcp" else sdk)
        server: Any = (package.MCPServer if sdk == "mcp" else package.FastMCP)("shop")
        context: Any = package.Context
        self.sdk, self.server = sdk, server
        #: Is set once a call has had its effect; and until it is cleared, no call goes on after
        #: that.
        self.done, self.held = threading.Event(), threading.Event()
        terms = {"caller": agent_of, **({"guarantee": "lease"} if is_async else {}), **terms}

        def charge(
            amount: int, ctx: context, note: str = "", request_id: str | None = None
        ) -> dict[str, int]:
            made: dict[str, int] = work(amount)
            self.done.set()
            while self.held.is_set():
                time.sleep(PAUSE)
            return made

        async def acharge(
            amount: int, ctx: context, note: str = "", request_id: str | None = None
        ) -> dict[str, int]:
            made: dict[str, int] = await sync_to_async(work)(amount)
            self.done.set()
            await polled(lambda: not self.held.is_set())
            return made

        #: The last of them.
        self.guarded: Any = None
        for name in ("charge", "refund"):
            tool: Any = acharge if is_async else charge
            self.guarded = idempotent_tool(key_prefix=f"{sdk}.{name}", **terms)(tool)
            server.tool(name=name)(self.guarded)

    def call(
        self,
        amount: int = 1,
        *,
        tool: str = "charge",
        key: Any = KEY,
        agent: Any = "ada",
        **more: Any,
    ) -> Answer:
        """Call a tool, in a session of its own."""
        return async_to_sync(self.acall)(amount, tool=tool, key=key, agent=agent, **more)

    async def acall(
        self,
        amount: int = 1,
        *,
        tool: str = "charge",
        key: Any = KEY,
        agent: Any = "ada",
        **more: Any,
    ) -> Answer:
        """See call()."""
        meta = {"agent": agent, **({} if key is None else {"idempotency-key": key})}
        async with client(self.sdk, self.server) as session:
            return await called(session, self.sdk, tool, {"amount": amount, **more}, meta)


def client(sdk: str, server: Any, **options: Any) -> Any:
    if sdk == "mcp":
        from mcp import Client

        return Client(server, **options)
    from fastmcp import Client as FastClient

    return FastClient(server, **options)


async def called(
    session: Any, sdk: str, tool: str, arguments: dict[str, Any], meta: dict[str, Any]
) -> Answer:
    more = {} if sdk == "mcp" else {"raise_on_error": False}
    result = await session.call_tool(tool, arguments, meta=meta, **more)
    content = (
        result.structured_content
        if result.structured_content is not None
        else result.content[0].text
    )
    return Answer(content, result.is_error, (result.meta or {}).get("idempotent-replayed", False))
