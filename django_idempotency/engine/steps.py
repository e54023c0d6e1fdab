"""What an operation needs from outside, as steps: each decision is written once for sync and async code. Ring 2.

A decision that needs a store is a generator: it yields a step and gets back the result, or the exception. `drive` takes
the steps in this thread, `adrive` in a task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any, NamedTuple, Protocol, TypeVar

from ..core.records import Record, Settlement, Ticket
from ..stores.base import BaseStore

T = TypeVar("T")


class Step(Protocol):
    """One thing that takes time or may fail."""

    def take(self, store: BaseStore) -> Any:
        """Do it in this thread."""

    async def atake(self, store: BaseStore) -> Any:
        """See take()."""


Steps = Generator[Step, Any, T]


class Claim(NamedTuple):
    """Claim the key. The result is the record."""

    ticket: Ticket

    def take(self, store: BaseStore) -> Record:
        return store.claim(self.ticket)

    async def atake(self, store: BaseStore) -> Record:
        return await store.aclaim(self.ticket)


class Settle(NamedTuple):
    """Write a settlement. The result is whether the record was ours."""

    ticket: Ticket
    settlement: Settlement

    def take(self, store: BaseStore) -> bool:
        return store.settle(self.ticket, self.settlement)

    async def atake(self, store: BaseStore) -> bool:
        return await store.asettle(self.ticket, self.settlement)


class Pause(NamedTuple):
    """Wait before a retry."""

    seconds: float

    def take(self, store: BaseStore) -> None:
        time.sleep(self.seconds)

    async def atake(self, store: BaseStore) -> None:
        await asyncio.sleep(self.seconds)


def drive(store: BaseStore, steps: Steps[T]) -> T:
    """Take all steps, and return the result of the decision."""
    try:
        step = next(steps)
        while True:
            try:
                answer = step.take(store)
            except BaseException as error:  # noqa: BLE001 - the decision may handle it
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def adrive(store: BaseStore, steps: Steps[T]) -> T:
    """See drive()."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await step.atake(store)
            except BaseException as error:  # noqa: BLE001 - the decision may handle it
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
