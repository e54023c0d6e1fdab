"""Publishers: a function `publish(message)`, or a class with that method, named by a dotted path.

`publish` returns once the broker has confirmed the message, and raises otherwise.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ...errors import BrokerUnavailable

if TYPE_CHECKING:
    from .models import Message

Publish = Callable[["Message"], object]

#: Exceptions that mean the broker is unavailable, rather than that it rejects a message.
AWAY = (BrokerUnavailable, ConnectionError)


def publisher_at(path: str) -> Any:
    """Return the publisher at a dotted path.

    Raises `ImproperlyConfigured` if it is not a publisher.
    """
    try:
        found = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"The publisher {path!r} cannot be imported: {error}") from error
    if not can_publish(found):
        raise ImproperlyConfigured(
            f"The publisher {path!r} is neither a function publish(message) nor a class "
            "with a method publish(message)."
        )
    if inspect.iscoroutinefunction(getattr(found, "publish", found)):
        raise ImproperlyConfigured(
            f"The publisher {path!r} is async, but the relay is sync. Type a sync one."
        )
    return found


def refuse_promise(result: object) -> None:
    """Raise `TypeError` for a result that has not published: nothing awaits or iterates it."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()
        kind = type(result).__name__
        raise TypeError(
            f"publish() returned an awaitable or a generator ({kind}), which is never run. "
            "Type a plain def."
        )
    if isinstance(result, Future):
        raise TypeError(
            "publish() returned a Future, so the broker has not confirmed yet. Return its "
            ".result(timeout)."
        )


def can_publish(publisher: Any) -> bool:
    """Is it a function, or does it have a method `publish`?"""
    return callable(
        getattr(publisher, "publish", None if isinstance(publisher, type) else publisher)
    )


@contextmanager
def open_publisher(publisher: Any) -> Iterator[Publish]:
    """Instantiate a publisher class, enter it if it is a context manager, and close it at the end.

    Raises `BrokerUnavailable` for any error while it is opened: most publishers connect then.
    """
    with ExitStack() as closing:
        try:
            made = publisher() if isinstance(publisher, type) else publisher
            if isinstance(publisher, type) and hasattr(publisher, "__enter__"):
                made = closing.enter_context(made)
            elif isinstance(publisher, type) and hasattr(publisher, "close"):
                closing.callback(made.close)
        except Exception as error:
            raise BrokerUnavailable(
                f"The publisher could not be opened. {type(error).__name__}: {error}"
            ) from error
        try:
            yield getattr(made, "publish", made)
        finally:
            # A lost connection cannot be closed; every confirmation has arrived.
            with suppress(Exception):
                closing.close()
