"""The terms of one decorated function. Every error in them is raised when the decorator runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any
from weakref import WeakSet

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured

from .. import conf
from ..core.canonical import digest
from ..core.dialects import takes
from ..core.policy import Policy, Resolved, async_contradiction
from ..core.records import Guarantee, Record
from ..core.rules import MADE_BY
from ..core.selectors import Selector
from ..core.serialization.results import Results
from ..errors import ConfigurationError
from ..scopes import qualified, realm_of
from .arguments import Arguments

OnReplay = Callable[[Any, Record], Any]
#: The terms of every guarded function that still exists, for the checks.
_DECLARED: WeakSet[FunctionTerms] = WeakSet()

#: The hook of a coroutine function may also be one.
OnTakeover = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionTerms:
    """One function's terms. Raises `ImproperlyConfigured` for terms that can never work."""

    function: Callable[..., Any]
    policy: Policy
    arguments: Arguments
    #: `None`: the whole payload is the key.
    key: Selector | None
    #: `None`: only the key identifies a call.
    validate: Selector | None
    algorithm: str
    results: Results
    keep_exceptions: tuple[type[Exception], ...]
    on_replay: OnReplay | None
    on_takeover: OnTakeover | None
    #: The function's name in the store and in logs.
    name: str
    #: The class whose name is a part of `name`, if the function is a method that nobody has named
    #: otherwise.
    owner: str | None = None

    def __post_init__(self) -> None:
        function = self.function
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ImproperlyConfigured(
                f"{self.name} is a generator: what it yields cannot be stored. Guard a "
                "function that returns a list."
            )
        if self.is_async and self.policy.guarantee == Guarantee.ATOMIC:
            raise ImproperlyConfigured(
                async_contradiction(self.name, fix='Type guarantee="lease".')
            )
        for each in self.policy.given().get("extensions", ()):
            if not each.takes_functions:
                raise ImproperlyConfigured(
                    f"{self.name}: {each!r} looks at requests, and a call of a function has none. "
                    "Put it in the policy of the view, or leave it out."
                )
        for selector, name in ((self.key, "key"), (self.validate, "validate")):
            if selector is not None:
                self.arguments.refuse_strangers(selector, f"{self.name}: {name}")
        for hook, name, of in (
            (self.on_takeover, "on_takeover", ["takeover"]),
            (self.on_replay, "on_replay", ["result", "record"]),
        ):
            if hook is not None and not takes(hook, len(of)):
                raise ImproperlyConfigured(
                    f"{self.name}: {name} is a function of {' and '.join(of)}, not {hook!r}."
                )
            if iscoroutinefunction(hook) and (name == "on_replay" or not self.is_async):
                raise ImproperlyConfigured(f"{self.name}: {name} must be a sync function.")
        _DECLARED.add(self)

    @cached_property
    def is_async(self) -> bool:
        """Is it a coroutine function?"""
        return iscoroutinefunction(self.function)

    @property
    def asks_project(self) -> bool:
        """Does code of the project, which may query the ORM, store or load a result?"""
        return self.on_replay is not None or self.results.serialized

    @property
    def kept(self) -> tuple[type[Exception], ...]:
        """The exceptions that are stored and raised again."""
        return (*self.keep_exceptions, *self.resolved().undo_on)

    @cached_property
    def select(self) -> Callable[[Any], Any] | None:
        """Return what selects the key from a payload; `None`: the whole payload is the key."""
        if self.key is not None and self.arguments.always_has(self.key.field):
            return itemgetter(self.key.field)
        return self.key

    @cached_property
    def validated_by(self) -> str:
        """Name the expression of `validate`, for the records whose digest it makes; "" without one.

        See `rules.incomparable()`.
        """
        if self.validate is None:
            return ""
        expression: Any = self.validate.expression
        if isinstance(expression, str):
            spelling = "".join(expression.split())
        else:
            kind = expression if hasattr(expression, "__qualname__") else type(expression)
            spelling = f"{kind.__module__}.{kind.__qualname__}()"
        return MADE_BY + digest([self.arguments.only, spelling])[:16]

    @cached_property
    def identifying(self) -> frozenset[str] | None:
        """The arguments that a key is made of; `None`: perhaps all of them."""
        only = self.arguments.only
        if only is not None:
            return frozenset({only})
        return None if self.key is None or self.key.whole else self.key.roots

    @cached_property
    def payload(self) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Any]:
        """Return `payload(args, kwargs)` for a call, which a method gets on an instance or on a
        class.
        """
        leading = self.arguments.leading
        payload = self.arguments.payload
        if not leading:
            return payload
        owner = self.owner
        known: set[type] = set()

        def of_method(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            if owner is not None and args:
                cls = args[0] if isinstance(args[0], type) else type(args[0])
                if cls not in known:
                    self._refuse_inherited(cls)
                    known.add(cls)
            return payload(args[leading:], kwargs)

        return of_method

    def _refuse_inherited(self, cls: type) -> None:
        """Raise `ConfigurationError` for a class that has this method from another one, whose name
        its keys have.

        All classes that inherit it would share its keys: a call of one would return what another
        has done.
        """
        if f"{cls.__module__}.{cls.__qualname__}" == self.owner:
            return
        raise ConfigurationError(
            f"{cls.__qualname__} does not define {self.function.__qualname__}(), whose "
            "keys have the name of the class "
            "that does, so a call of one class would return the result of another. If "
            "they are the same operations, type "
            f'key_prefix="{self.name}" in its @idempotent_function, and the records that '
            "exist stay known. Otherwise "
            f"guard a method of {cls.__qualname__} itself, which calls an unguarded one."
        )

    def resolved(self) -> Resolved:
        """Return the policy with all its fields.

        Raises `ConfigurationError` if it contradicts the settings.
        """
        try:
            return conf.resolve(self.policy)
        except ValueError as error:
            raise ConfigurationError(f"{self.name}: {error}") from error

    @property
    def scope(self) -> str:
        """The scope of the function's keys, in the current realm. Raises `ConfigurationError`."""
        return self.scope_under(self.resolved())

    def scope_under(self, policy: Resolved) -> str:
        """See scope, for a policy that is already resolved."""
        realm = realm_of(policy, None)
        return self.own_scope if realm is None else qualified(f"call:{self.name}", realm=realm)

    @cached_property
    def own_scope(self) -> str:
        """The scope of the function's keys outside of any realm."""
        return qualified(f"call:{self.name}")


def declared() -> list[FunctionTerms]:
    """Return the terms of every guarded function that has been imported, by name."""
    return sorted(_DECLARED, key=lambda terms: terms.name)


def exception_classes(
    exceptions: Any, says: str = "keep_exceptions takes classes of exceptions, such as (SoldOut,)"
) -> tuple[type[Exception], ...]:
    """Return the classes that a field names as a tuple; a single class is accepted.

    Raises `TypeError` for anything else. `says`: the beginning of its message.
    """
    classes = (
        tuple(exceptions)
        if isinstance(exceptions, Iterable) and not isinstance(exceptions, type)
        else (exceptions,)
    )
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, Exception)):
            raise TypeError(f"{says}, not {cls!r}.")
    return classes
