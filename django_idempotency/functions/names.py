"""What identifies a call in the store: the name of its function, and a key that the project makes
itself.

One rule: a name identifies one function, in every process. Otherwise two functions would share
their keys, and a call of one could return the result of the other. So if only the code that made a
function can distinguish it from others, the project must name it: `key_prefix`.
"""

from __future__ import annotations

import functools
import inspect
from types import ModuleType
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..core.canonical import UnhashableValue, digest
from ..errors import KeyMalformed, UnhashablePayload

MAX_KEY = 255

#: The names of a module that runs as a program, and of the same module in processes that
#: `multiprocessing` spawns.
_PROGRAMS = ("__main__", "__mp_main__")


def name_of(function: Any, prefix: str | None) -> str:
    """Return the prefix, or else module and qualified name.

    Raises `ImproperlyConfigured` if that may not be unique.
    """
    if prefix is not None:
        return prefix
    why = _shared(function)
    if why is not None:
        raise ImproperlyConfigured(f'{why}: type key_prefix="…".')
    return f"{function.__module__}.{function.__qualname__}"


def _shared(function: Any) -> str | None:
    """Return why other functions may have the same name; `None` if the name is unique."""
    name = function.__qualname__
    if function.__name__ == "<lambda>":
        return "A lambda has no name, so all lambdas of a module would share their keys"
    if "<" in name:  # Python's own mark for what a function defines: <locals>
        return (
            f"{name} is a new function on each call of the function around it, and its "
            "closure is not part of its name, so "
            "all of them would share their keys"
        )
    if not isinstance(getattr(function, "__self__", None), ModuleType | None):
        return (
            f"{name} is bound to one object, and has the same name for all others, so they "
            "would share their keys"
        )
    if function.__module__ is None:
        return f"{name} has no module, so all functions of that name would share their keys"
    if function.__module__ in _PROGRAMS:
        return (
            "A program has no name of its own, so functions of two of them would share "
            "their keys, and its child "
            "processes would not"
        )
    return None


def refuse_registered(function: Any) -> None:
    """Raise `ImproperlyConfigured` for what has registered the function that it was made of, under
    a name.

    Whoever finds it by that name, as a worker does, would run the function without a guard. So only
    functions are guarded, with what wraps functions; and none of what is under it may be another
    kind of object, or hold the function itself.
    """
    inner = function
    while inner is not None:
        if not (
            inspect.isroutine(inner)
            or (inner is not function and isinstance(inner, functools.partial))
        ):
            raise ImproperlyConfigured(
                f"@idempotent_function() needs a function, not the {type(inner).__name__} "
                "that another decorator has "
                f"made of {_called(inner)}: who finds that by its name, as a worker finds "
                "a task, would run it without a "
                f"guard. Swap the two lines: @idempotent_function goes directly above the function."
            )
        members = getattr(inner, "__dict__", {})
        for name, member in members.items():
            if name != "__wrapped__" and any(
                held is inner for held in getattr(member, "__dict__", {}).values()
            ):
                raise ImproperlyConfigured(
                    f"Another decorator has registered {_called(inner)} (as its {name}) "
                    "before @idempotent_function, so "
                    "it would run without a guard. Swap the two lines: "
                    "@idempotent_function goes directly above the "
                    f"function."
                )
        inner = members.get("__wrapped__")


def _called(function: Any) -> str:
    return f"{getattr(function, '__name__', None) or type(function).__name__}()"


def validate_key(key: Any) -> str:
    """Return a key that was given explicitly. Raises `KeyMalformed`."""
    if not (
        isinstance(key, str) and 0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()
    ):
        raise KeyMalformed(
            "An idempotency key is 1 to 255 printable ASCII characters. derive_key() makes "
            "one from any values."
        )
    return key


def derive_key(*parts: Any) -> str:
    """Return the key of some values, by type and meaning: 64 hex digits, the same in every process
    and release.

    It is not a secret: anyone who knows the parts can compute it. Raises `UnhashablePayload`.
    """
    try:
        return digest(parts)
    except UnhashableValue as error:
        raise UnhashablePayload(str(error)) from error
