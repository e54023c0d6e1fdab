"""Switches idempotency on or off for a test, regardless of the environment."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any, TypeVar, cast
from unittest import TestCase

from asgiref.sync import iscoroutinefunction

from ..core.concurrency import new_lock
from ..runtime import switch

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_changing = new_lock()
#: On a test class: whether idempotency is on for its tests, and for subclasses without an override.
_WANTED = "_overridden_idempotency"


class override_idempotency(ContextDecorator):  # noqa: N801 - named like override_settings
    """Switch idempotency off or on: a context manager, and a decorator of functions, coroutine
    functions and TestCases.

    With `enabled=False`, requests with a key and guarded functions run unguarded. It affects the
    whole process, including the threads of a live server. The innermost override counts, and takes
    precedence over IDEMPOTENCY_DISABLED.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        with _changing:
            switch.overrides = (*switch.overrides, self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # One of several calls may have entered it: all are equal, so any of them is left.
        with _changing:
            last = max(place for place, each in enumerate(switch.overrides) if each is self)
            switch.overrides = switch.overrides[:last] + switch.overrides[last + 1 :]

    def __call__(self, decorated: Decorated) -> Decorated:
        """Decorate.

        Raises `TypeError` for a generator or a class that is not a TestCase: they would run
        outside.
        """
        name = getattr(decorated, "__qualname__", repr(decorated))
        if inspect.isclass(decorated):
            if not issubclass(decorated, TestCase):
                raise TypeError(
                    f"override_idempotency() on {name}, which is not a TestCase. Put it on "
                    "the methods, or type "
                    '@pytest.mark.usefixtures("idempotency_disabled").'
                )
            _on_class(decorated, enabled=self.enabled)
            return decorated
        if inspect.isgeneratorfunction(decorated) or inspect.isasyncgenfunction(decorated):
            raise TypeError(
                f"override_idempotency() on {name}, a generator. Open it inside, by `with`."
            )
        if not iscoroutinefunction(decorated):
            return super().__call__(decorated)

        @functools.wraps(decorated)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return await decorated(*args, **kwargs)

        return cast("Decorated", wrapper)


def _on_class(cls: type[TestCase], *, enabled: bool) -> None:
    """Open an override before setUpClass(), and so before setUpTestData(), and close it after the
    last test.
    """
    setattr(cls, _WANTED, enabled)
    own = vars(cls).get("setUpClass")
    decorated = cls

    def set_up_class(cls: type[TestCase]) -> None:
        # A base's setUpClass() reads its subclass's.
        override = override_idempotency(enabled=getattr(cls, _WANTED))
        override.__enter__()
        cls.addClassCleanup(override.__exit__, None, None, None)
        if own is None:
            # A subclass may have other bases between itself and ours.
            above: Any = super(decorated, cls)
            above.setUpClass()
        else:
            own.__get__(None, cls)()

    cls.setUpClass = classmethod(set_up_class)  # type: ignore[assignment]
