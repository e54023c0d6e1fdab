"""How checks speak.

Each message is a class, named by its code; its docstring is what it says, and then what to type.

E: the configuration cannot work. W: it works, but may surprise. I: it is worth knowing. The classes
are beside what finds them: those of our stores in `stores`, the others in `checks` and in the apps.
`docs/reference/checks.md` lists them.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from inspect import cleandoc
from typing import Any, ClassVar

from django.core.checks import ERROR, INFO, WARNING, CheckMessage

PREFIX = "django_idempotency"


class Finding(CheckMessage):
    """The message of a check. Make it with the facts that its docstring names: `E001(found="a
    list")`.

    `%(silence)s` is what silences it.
    """

    _LEVELS: ClassVar[dict[str, int]] = {"E": ERROR, "W": WARNING, "I": INFO}

    def __init__(self, **facts: Any) -> None:
        code = type(self).__name__
        facts["silence"] = f'SILENCED_SYSTEM_CHECKS = ["{PREFIX}.{code}"]'
        message, hint = (" ".join((text % facts).split()) for text in self.texts())
        super().__init__(self._LEVELS[code[0]], message, hint=hint, id=f"{PREFIX}.{code}")

    @classmethod
    def texts(cls) -> tuple[str, str]:
        """Return its message and its hint, with the names of facts in them."""
        message, _, hint = cleandoc(cls.__doc__ or "").partition("\n\n")
        return " ".join(message.split()), " ".join(hint.split())


def closest(name: str, known: Iterable[Any]) -> str:
    """Return the known name that is most similar to `name`."""
    return next(iter(get_close_matches(name, map(str, known), n=1, cutoff=0)), "default")


def and_more(found: Sequence[str]) -> str:
    """Return what follows the first name in a message."""
    return f" and {len(found) - 1} more" if len(found) > 1 else ""


def shown(value: Any) -> str:
    """Return a value's repr, shortened, on one line."""
    try:
        return " ".join(_SHORT.repr(value).split())
    except Exception:  # noqa: BLE001 - a foreign repr
        return type_named(value)


def one_line(error: BaseException) -> str:
    """Return an error's type and message, shortened, on one line: our messages say what to type."""
    try:
        text = " ".join(str(error).split()).rstrip(".")
    except Exception:  # noqa: BLE001 - a foreign repr
        text = ""
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def type_named(value: Any) -> str:
    """Name the type of a value without showing it: it may be a secret."""
    return "None" if value is None else f"a value of type {type(value).__name__}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
