"""What an operation needs from outside, as commands: each decision is written once for sync and
async code.

A decision that needs a store is a generator: it yields a command and gets back the result, or the
exception. `drive` runs them in this thread, `adrive` in a task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any, NamedTuple, Protocol, TypeVar

from ..core import driving
from ..core.records import Record, Settlement, Ticket
from ..stores.base import BaseStore

T = TypeVar("T")


class Command(Protocol):
    """One thing that takes time or may fail."""

    def run(self, store: BaseStore) -> Any:
        """Do it in this thread."""

    async def arun(self, store: BaseStore) -> Any:
        """See run()."""


Commands = Generator[Command, Any, T]


class Claim(NamedTuple):
    """Claim the key. The result is the record."""

    ticket: Ticket

    def run(self, store: BaseStore) -> Record:
        return store.claim(self.ticket)

    async def arun(self, store: BaseStore) -> Record:
        return await store.aclaim(self.ticket)


class Settle(NamedTuple):
    """Write a settlement. The result is whether the record was ours."""

    ticket: Ticket
    settlement: Settlement

    def run(self, store: BaseStore) -> bool:
        return store.settle(self.ticket, self.settlement)

    async def arun(self, store: BaseStore) -> bool:
        return await store.asettle(self.ticket, self.settlement)


class Pause(NamedTuple):
    """Wait before a retry."""

    seconds: float

    def run(self, store: BaseStore) -> None:
        time.sleep(self.seconds)

    async def arun(self, store: BaseStore) -> None:
        await asyncio.sleep(self.seconds)


def drive(store: BaseStore, commands: Commands[T]) -> T:
    """Run all commands, and return the result of the decision."""
    return driving.drive(commands, lambda command: command.run(store))


async def adrive(store: BaseStore, commands: Commands[T]) -> T:
    """See drive()."""
    return await driving.adrive(commands, lambda command: command.arun(store))
