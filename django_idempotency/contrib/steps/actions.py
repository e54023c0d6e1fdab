"""What steps need from outside, so that each decision is written once for sync and async code.

A decision is a generator: it yields an action and gets back the result, or the exception.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.db import connections

from ...api import CURRENT_STEP
from ...core.concurrency import in_thread
from ...errors import ConfigurationError
from ...runtime.current_step import RunningStep
from ...stores.lending import in_database_thread
from .. import driving

T = TypeVar("T")


class Query:
    """Read or write the table of steps."""

    def __init__(self, query: Callable[..., Any], *given: Any) -> None:
        self._query = query
        self._given = given

    def run(self) -> Any:
        return self._query(*self._given)

    async def arun(self) -> Any:
        return await in_database_thread(self._query, *self._given)


@dataclass(frozen=True, slots=True)
class Call:
    """Call a function of the project."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    #: What runs, for the calls that the function makes.
    step: RunningStep | None = None
    #: Calls it, and repeats it if it fails.
    retry: Callable[..., Any] | None = None
    #: May a coroutine function be driven from sync code? Those that give up are: a command has no
    #: event loop, and Django calls process_exception() of an async view in a thread.
    drives_async: bool = False

    def run(self) -> Any:
        if iscoroutinefunction(self.function) and not self.drives_async:
            raise ConfigurationError(
                f"{getattr(self.function, '__name__', self.function)} is async: in async "
                "code, await astep(…)."
            )
        called = (
            async_to_sync(self.function) if iscoroutinefunction(self.function) else self.function
        )
        with entered(self.step):
            result = self._called(called)
        if inspect.iscoroutine(result):
            result.close()
            raise ConfigurationError(
                f"{self.function!r} returned a coroutine, which has not run: await astep(…)."
            )
        return result

    async def arun(self) -> Any:
        with entered(self.step):
            if iscoroutinefunction(self.function):
                result = self._called(self.function)
            else:
                result = await in_thread(self._called, self.function, close=connections.close_all)
            return await result if inspect.isawaitable(result) else result

    def _called(self, function: Callable[..., Any]) -> Any:
        if self.retry is None:
            return function(*self.args, **self.kwargs)
        return self.retry(function, *self.args, **self.kwargs)


#: A decision, which yields what takes time or may fail.
Actions = Generator[Query | Call, Any, T]


@contextmanager
def entered(step: RunningStep | None) -> Iterator[None]:
    """Enter the context in which a step's body runs."""
    token = CURRENT_STEP.set(step)
    try:
        yield
    finally:
        CURRENT_STEP.reset(token)


@contextmanager
def only_in(using: str, what: str) -> Iterator[None]:
    """Refuse to write to any other database than `using` inside the block.

    Raises `ConfigurationError` there.

    What is written elsewhere would be committed without the steps. The statements of Django's other
    connections of this thread are looked at before they are sent. That costs none.
    """
    here = connections[using]

    def look(
        execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if is_write(text_of(sql, context["cursor"])):
            other = context["connection"].alias
            raise ConfigurationError(
                f"{what} writes to the database {other!r}, and its result is in {using!r}: "
                "one of them may be committed "
                "without the other. Let your routers put both into one database; or take "
                "the argument idempotency_key, under "
                "which the function is called again after a crash, and must not write twice."
            )
        return execute(sql, params, many, context)

    with ExitStack() as stack:
        for other in connections.all():
            if other is not here:  # a test's mirror is
                stack.enter_context(other.execute_wrapper(look))
        yield


def drive(actions: Actions[T]) -> T:
    """Run all actions in this thread, and return the result of the decision."""
    return driving.drive(actions, lambda action: action.run())


async def adrive(actions: Actions[T]) -> T:
    """See drive()."""
    return await driving.adrive(actions, lambda action: action.arun())


# ------------------------------------ does a statement of the work write, as far as its text tells?

_GAP = r"(?:\s|\(|/\*(?:[^*]|\*(?!/))*\*/|--[^\n]*\n)*"
_WRITES = re.compile(rf"{_GAP}(?:INSERT|UPDATE|DELETE|REPLACE|MERGE)\b", re.IGNORECASE)
_WITH = re.compile(rf"{_GAP}WITH\b", re.IGNORECASE)
#: In a statement that begins with WITH. FOR UPDATE only locks.
_WRITES_INSIDE = re.compile(
    r"\b(?:INSERT\s+INTO|DELETE\s+FROM|MERGE\s+INTO|UPDATE\s+\S+\s+(?:(?:AS\s+)?\w+\s+)?SET)\b",
    re.IGNORECASE,
)


def text_of(sql: Any, cursor: Any) -> str:
    """Return a statement as text.

    `sql` is what `cursor` takes: psycopg's also bytes, or what is composed.
    """
    if hasattr(sql, "as_string"):
        sql = sql.as_string(cursor.cursor)
    return sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)


def is_write(text: str) -> bool:
    """Does a statement write?"""
    if _WRITES.match(text) is not None:
        return True
    return _WITH.match(text) is not None and _WRITES_INSIDE.search(text) is not None
