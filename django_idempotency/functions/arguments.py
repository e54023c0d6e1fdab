"""The arguments of a call by name, whether positional, keyword or default."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..core.selectors import Selector
from ..errors import UnhashablePayload

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Arguments:
    """Reads the payload of a function's calls: all arguments by name, or only the one that `only`
    names.

    The `self` or `cls` of a method is not part of it. Nothing is copied.
    """

    def __init__(self, function: Callable[..., Any], only: str | None = None) -> None:
        signature = inspect.signature(function)
        #: How many leading arguments are not part of the payload.
        self.leading = int(is_method(function))
        parameters = list(signature.parameters.values())[self.leading :]
        self._signature = signature.replace(parameters=parameters)
        #: The argument that is the payload.
        self.only = only
        self._names = frozenset(parameter.name for parameter in parameters)
        self._order = tuple(
            p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY
        )
        self._defaults = {
            p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty
        }
        self._plain = not any(
            p.kind in (*_VARIADIC, inspect.Parameter.POSITIONAL_ONLY) for p in parameters
        )
        self._takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        #: The name of `**more`, which is not an argument itself; only its items are.
        self._more = {p.name for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD}
        if only is not None and (
            only in self._more or (only not in self._names and not self._takes_any)
        ):
            known = ", ".join(p.name for p in parameters if p.name not in self._more) or "none"
            raise ImproperlyConfigured(
                f"data_keyword_argument={only!r}: {function.__qualname__}() has no such "
                f"argument. It has {known}."
            )

    def always_has(self, name: str | None) -> bool:
        """Has each payload an item of this name?"""
        return self.only is None and name in self._names - self._more

    def refuse_strangers(self, selector: Selector, name: str) -> None:
        """Raise `ImproperlyConfigured` for an expression over names that no payload has: it would
        select nothing.
        """
        roots = selector.roots
        only = self.only
        expression = str(selector.expression)
        if only is not None and only in roots and "@" not in expression:
            inside = re.sub(
                rf'(?<![\w."]){only}(\.|\b)', lambda found: "" if found[1] else "@", expression
            )
            raise ImproperlyConfigured(
                f"{name}={expression!r} begins at {only!r}, which data_keyword_argument "
                "has taken out: type "
                f"{name.rpartition(' ')[2]}={inside!r}; or '@.{only}' for a member of it "
                "with the same name."
            )
        unknown = roots & self._more if self._takes_any else roots - self._names
        if only is None and unknown:
            known = ", ".join(sorted(self._names - self._more)) or "none by name"
            raise ImproperlyConfigured(
                f"{name}={expression!r} selects {', '.join(sorted(unknown))}, but the "
                f"arguments are {known}."
            )

    def payload(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        asked: AbstractSet[str] | None = None,
    ) -> Any:
        """Return the payload of a call; `args` without `self`.

        `asked`: no other argument is asked for; `None`: all are.

        Raises `TypeError` for arguments that the function rejects, and without one that is asked
        for.
        """
        if not args and self._plain and kwargs.keys() == self._names:
            return {**kwargs} if self.only is None else kwargs[self.only]
        named = self._named(args, kwargs, asked)
        return named if self.only is None else named.get(self.only)

    def _named(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], asked: AbstractSet[str] | None
    ) -> dict[str, Any]:
        # inspect's binding costs ten times as much. It is used for unusual calls, and for wrong
        # ones.
        given = (
            dict(zip(self._order, args, strict=False))
            if self._plain and len(args) <= len(self._order)
            else None
        )
        if given is not None and given.keys().isdisjoint(kwargs):
            named = {**self._defaults, **given, **kwargs}
            if named.keys() == self._names:
                return named
        bound = (self._signature.bind if asked is None else self._signature.bind_partial)(
            *args, **kwargs
        )
        bound.apply_defaults()
        for name in self._names & (asked or set()) - bound.arguments.keys():
            raise TypeError(f"missing a required argument: {name!r}")
        named = dict(bound.arguments)
        for parameter in self._signature.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                more = named.pop(parameter.name)
                if twice := more.keys() & named.keys():  # f(a, /, **more) accepts a second a
                    raise UnhashablePayload(
                        f"This call has two arguments named {', '.join(sorted(twice))}: rename one."
                    )
                named.update(more)
        return named


def is_method(function: Callable[..., Any]) -> bool:
    """Does a function take the `self` or `cls` of the class that defines it?"""
    owner = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), "")
    return first in ("self", "cls") and owner != "" and not owner.endswith("<locals>")
