"""What names a function in the store. One rule: a function's name names one function, in every process.

If it does not, calls of two functions would share their keys, and one be answered with the result of the other. So
where nothing but the code that made it tells a function from others, the project says a name: `key_prefix`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from django.core.exceptions import ImproperlyConfigured

#: What every module is called that is run as a program, and in the processes that `multiprocessing` spawns for it.
_PROGRAMS = ("__main__", "__mp_main__")


def name_of(function: Any, prefix: str | None) -> str:
    """Return the prefix, or else module and qualified name. Raises `ImproperlyConfigured` if many may have that one."""
    if prefix is not None:
        return prefix
    if (why := _shared(function)) is not None:
        raise ImproperlyConfigured(f'{why}: type key_prefix="…".')
    return f"{function.__module__}.{function.__qualname__}"


def _shared(function: Any) -> str | None:
    """Say which other functions may have the same name; `None`: none has."""
    name = function.__qualname__
    if function.__name__ == "<lambda>":
        return "A lambda has no name, so all of a module would share their keys"
    if "<" in name:  # Python's own mark, of all that a function makes: <locals>
        return (
            f"{name} is made anew by each call of the function around it, and what that binds is no part of its name, so "
            "all of them would share their keys"
        )
    if not isinstance(getattr(function, "__self__", None), ModuleType | None):
        return (
            f"{name} is bound to one object, and those of all others have the same name, so they would share their keys"
        )
    if function.__module__ is None:
        return f"{name} has no module, so all that are called so would share their keys"
    if function.__module__ in _PROGRAMS:
        return (
            "A program has no name of its own, so functions of two of them would share their keys, and its child "
            "processes would not"
        )
    return None
