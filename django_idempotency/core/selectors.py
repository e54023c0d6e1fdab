"""Selecting a part of a payload by a name or a callable.

Expressions of JMESPath are in `core.expressions`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from functools import cached_property, partial
from typing import Any
from uuid import UUID

from ..errors import NotSelectable
from .canonical import is_missing

#: Values, not objects with fields: `amount.real` selects nothing.
_OPAQUE = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray, memoryview, type),
    *(list, set, frozenset, Decimal, UUID, date, time, timedelta),
)
#: The attributes of a mapping that are looked up, where it has no such item: as `message_id` of an
#: SQS record's class.
_COMPUTED = (property, cached_property)


def looked_up(name: str, value: Any) -> Any:
    """Return what has a name in a mapping, or as a public attribute of another object; never a
    method. `None`: nothing.
    """
    if isinstance(value, dict):
        return value.get(name)
    # An ABC check takes as long as everything else here (measured), so a mapping must have get().
    if hasattr(value, "get") and isinstance(value, Mapping):
        found = value.get(name)
        if (
            found is None
            and name[0] != "_"
            and isinstance(getattr(type(value), name, None), _COMPUTED)
        ):
            with suppress(KeyError):  # of the item that it is computed from
                return getattr(value, name)
        return found
    if name.startswith("_") or isinstance(value, _OPAQUE):
        return None
    found = getattr(value, name, None)
    if isinstance(found, type):
        return None
    return found if isinstance(found, _OPAQUE) or not inspect.isroutine(found) else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Selector:
    """`selector(payload)` returns what an expression or a callable finds in the payload; `None` if
    it finds nothing.
    """

    #: As it was declared.
    expression: str | Callable[[Any], Any]
    find: Callable[[Any], Any]
    #: The one name of an expression that is nothing else.
    field: str | None = None
    #: The names that an expression looks up in the payload itself. Does it depend on more of it
    #: than these?
    roots: frozenset[str] = frozenset()
    whole: bool = True
    #: Does the expression build its result from parts (`[a, b]`, `{a: a, b: b}`)?
    in_parts: bool = True

    @cached_property
    def is_missing(self) -> Callable[[Any], bool]:
        """Is the selected value missing, or one of the parts that it was built from?"""
        return partial(is_missing, parts=self.in_parts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.expression!r})"

    def __call__(self, payload: Any) -> Any:
        """Select.

        Raises `NotSelectable` if the payload does not fit the expression, and what a callable
        raises.
        """
        if not isinstance(self.expression, str):
            return self.find(payload)
        try:
            return self.find(payload)
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise NotSelectable(
                f"{self.expression!r} cannot be applied: {self._reason(error)}"
            ) from error

    def _reason(self, error: Exception) -> str:
        return f"{type(error).__name__} in one of its functions."


def simple(expression: str | Callable[[Any], Any]) -> Selector | None:
    """Return the selector of a callable or of a plain name; `None` for an expression, which is
    parsed first.

    Raises `ValueError` for what selects nothing.
    """
    if isinstance(expression, str):
        if not (expression.isascii() and expression.isidentifier()):
            return None
        find = partial(looked_up, expression)
        roots = frozenset({expression})
        return Selector(
            expression=expression,
            find=find,
            field=expression,
            roots=roots,
            whole=False,
            in_parts=False,
        )
    if inspect.iscoroutinefunction(expression) or not callable(expression):
        raise ValueError(
            f"{expression!r} selects nothing: type a JMESPath expression, or a sync "
            "function of the payload."
        )
    return Selector(expression=expression, find=expression)
