"""A server on stdin and stdout, in a process that may be killed: `python -m
tests.contrib.tools.stdio`.
"""

import os
import signal

import django
from django.conf import settings
from mcp.server.mcpserver import Context, MCPServer

from django_idempotency import current_operation
from django_idempotency.contrib.tools import idempotent_tool


@idempotent_tool(key_prefix="tests.stdio", caller=lambda _: "local", required=True)
def charge(amount: int, ctx: Context) -> dict[str, int]:
    """Charge, and lose the process before the first attempt has ended."""
    from .servers import write

    made = write(amount)
    current = current_operation()
    assert current is not None
    if current.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return made


if __name__ == "__main__":
    django.setup()
    settings.IDEMPOTENCY = {"CLAIM_LEASE": 1}
    server = MCPServer("shop")
    server.add_tool(charge)
    server.run()
