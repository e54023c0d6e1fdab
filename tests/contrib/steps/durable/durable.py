"""The handler of docs/how-to/batches-and-durable-functions.md under the engine's own runner: a
program, as that leaves a loop open.

    python -m tests.contrib.steps.durable.durable

It prints as JSON what each execution returned or raised, and how often the card was charged.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import django
from django.conf import settings

from tests.docs.pages import DOCS, blocks

PAGE = "how-to/batches-and-durable-functions.md"


class Card:
    """A provider that counts its charges."""

    def __init__(self) -> None:
        self.charges: list[tuple[str, int]] = []

    def charge(self, order: str, amount: int) -> str:
        self.charges.append((order, amount))
        return f"ch_{len(self.charges)}"


class Lambda:
    """Calls a handler. An execution that is called again waits until another one has arrived."""

    def __init__(self, handler: Any) -> None:
        self.handler = handler
        self.invocations: Counter[str] = Counter()
        self.sleeps, self.met = threading.Event(), threading.Event()

    def __call__(self, event: Any, context: Any) -> Any:
        name = event.durable_execution_arn
        self.invocations[name] += 1
        if self.invocations[name] > 1:
            assert self.met.wait(10), "no other call has come"
        try:
            return self.handler(event, context)
        finally:
            self.sleeps.set()


def main() -> None:
    """Run three executions for one order: one sleeps in the middle, one comes in the meantime, one
    afterwards.
    """
    memory = {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}
    settings.configure(
        IDEMPOTENCY={"STORES": {"default": memory}, "GUARANTEE": "lease"}, SECRET_KEY="k" * 50
    )
    django.setup()
    providers = ModuleType("myshop.providers")
    providers.card = card = Card()  # type: ignore[attr-defined]
    sys.modules |= {"myshop": ModuleType("myshop"), "myshop.providers": providers}
    page: dict[str, Any] = {"__name__": "page"}
    (example,) = (block.code for block in blocks(DOCS / PAGE) if "def fulfil" in block.code)
    exec(example, page)
    called = Lambda(page["handler"])
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(executed, called)
        assert called.sleeps.wait(10), "the first execution does not go to sleep"
        second = executed(called)
        called.met.set()
        answers = [first.result(30), second, executed(called)]
    invocations = sorted(called.invocations.values())
    sys.stdout.write(
        json.dumps({"answers": answers, "charges": card.charges, "invocations": invocations})
    )


def executed(handler: Any) -> list[Any]:
    """Return how an execution ended, and its result."""
    from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestRunner

    with DurableFunctionTestRunner(handler=handler) as runner:
        ended = runner.run(
            input=json.dumps({"order_id": "o-17", "amount": 5}), execution_timeout=30
        )
    return [
        ended.status.name,
        json.loads(ended.result) if ended.result else ended.error and ended.error.type,
    ]


if __name__ == "__main__":
    main()
