"""What a publisher is: `publish(message)`, or a class that has it, named by a dotted path.

It returns when the broker has confirmed the message, and raises when it has not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..errors import BrokerUnavailable

if TYPE_CHECKING:
    from .models import Message

Publish = Callable[["Message"], object]

#: What says that the broker is away, rather than that it does not want a message.
AWAY = (BrokerUnavailable, ConnectionError)


def publisher_at(path: str) -> Any:
    """Return what a dotted path leads to. Raises `ImproperlyConfigured` when that cannot publish."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"The publisher {path!r} cannot be imported: {error}") from error
    if not can_publish(found):
        raise ImproperlyConfigured(
            f"The publisher {path!r} is neither a function publish(message) nor a class with a method publish(message)."
        )
    if inspect.iscoroutinefunction(getattr(found, "publish", found)):
        raise ImproperlyConfigured(f"The publisher {path!r} is async, and the relay awaits nothing. Type a sync one.")
    return found


def refuse_promise(answer: object) -> None:
    """Raise `TypeError` for a publisher that has only promised: what nobody awaits or iterates is not published."""
    if inspect.isawaitable(answer) or inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        kind = type(answer).__name__
        raise TypeError(
            f"publish() returned an awaitable or a generator ({kind}), which nobody runs. Type a plain def."
        )
    if isinstance(answer, Future):
        raise TypeError(
            "publish() returned a Future, so the broker has not confirmed yet. Return its .result(timeout)."
        )


def can_publish(publisher: Any) -> bool:
    """Is it a function, or does it have `publish`?"""
    return callable(getattr(publisher, "publish", None if isinstance(publisher, type) else publisher))


@contextmanager
def opened(publisher: Any) -> Iterator[Publish]:
    """Make a publisher of its class, enter it if it is a context manager, and close it in the end.

    Raises `BrokerUnavailable` when that failed, whatever it was: most of them connect.
    """
    with ExitStack() as closing:
        try:
            made = publisher() if isinstance(publisher, type) else publisher
            if isinstance(publisher, type) and hasattr(publisher, "__enter__"):
                made = closing.enter_context(made)
            elif isinstance(publisher, type) and hasattr(publisher, "close"):
                closing.callback(made.close)
        except Exception as error:
            raise BrokerUnavailable(f"The publisher could not be opened. {type(error).__name__}: {error}") from error
        try:
            yield getattr(made, "publish", made)
        finally:
            with suppress(Exception):  # what is lost cannot be closed; all that it confirmed is known
                closing.close()
