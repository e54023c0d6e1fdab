"""Decisions that are written once for sync and async code, as generators.

Such a generator yields what takes time or may fail, and gets back the result, or the exception. Its
return value is the decision.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")
Y = TypeVar("Y")


def drive(decision: Generator[Y, Any, T], do: Callable[[Y], Any]) -> T:
    """Do everything that a decision yields, in this thread, and return its result."""
    try:
        wanted = next(decision)
        while True:
            try:
                answer = do(wanted)
            except BaseException as error:  # noqa: BLE001 - the decision may handle it
                wanted = decision.throw(error)
            else:
                wanted = decision.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def adrive(decision: Generator[Y, Any, T], do: Callable[[Y], Awaitable[Any]]) -> T:
    """See drive()."""
    try:
        wanted = next(decision)
        while True:
            try:
                answer = await do(wanted)
            except BaseException as error:  # noqa: BLE001 - the decision may handle it
                wanted = decision.throw(error)
            else:
                wanted = decision.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
