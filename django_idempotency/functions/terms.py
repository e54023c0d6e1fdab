"""What one decorated function asks for. Everything that can be wrong is found when the decorator runs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakSet

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured

from .. import conf
from ..core.policy import Policy, Resolved
from ..core.records import MISSING, Guarantee, Record
from ..core.scope_names import qualified
from ..errors import ConfigurationError
from ..realms import realm_of
from ..selectors import Selector
from ..serialization.results import FunctionResults
from .arguments import Arguments
from .current import Decision, Takeover

OnReplay = Callable[[Any, Record], Any]
#: Of every guarded function that lives, for the checks.
_DECLARED: WeakSet[Terms] = WeakSet()

#: Of a coroutine function it may be one, too.
OnTakeover = Callable[[Takeover], Decision | Awaitable[Decision]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """One function's terms. Raises `ImproperlyConfigured` for what can never work."""

    function: Callable[..., Any]
    policy: Policy
    arguments: Arguments
    #: `None`: the whole payload is the key.
    key: Selector | None
    #: `None`: nothing binds but the key.
    validate: Selector | None
    algorithm: str
    results: FunctionResults
    keep_exceptions: tuple[type[Exception], ...]
    on_replay: OnReplay | None
    on_takeover: OnTakeover | None
    #: What names the function in the store, and in logs.
    name: str

    def __post_init__(self) -> None:
        function = self.function
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ImproperlyConfigured(
                f"{self.name} is a generator: what it yields cannot be remembered. Guard a function that returns a list."
            )
        if self.is_async and self.policy.guarantee == Guarantee.ATOMIC:
            raise ImproperlyConfigured(f'{self.name} is async and cannot be "atomic". Type guarantee="lease".')
        for selector, name in ((self.key, "key"), (self.validate, "validate")):
            if selector is not None:
                self.arguments.refuse_strangers(selector.roots, f"{self.name}: {name}={selector.expression!r}")
        for hook, name in ((self.on_takeover, "on_takeover"), (self.on_replay, "on_replay")):
            if hook is not None and not callable(hook):
                raise ImproperlyConfigured(f"{self.name}: {name} is a function, not {hook!r}.")
            if iscoroutinefunction(hook) and (name == "on_replay" or not self.is_async):
                raise ImproperlyConfigured(f"{self.name}: {name} must be a sync function.")
        _DECLARED.add(self)

    @cached_property
    def is_async(self) -> bool:
        """Is it a coroutine function?"""
        return iscoroutinefunction(self.function)

    @property
    def loads(self) -> bool:
        """Does code of the project make what a replay returns?"""
        return self.results.serialized or self.on_replay is not None

    @cached_property
    def payload(self) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Any]:
        """`payload(args, kwargs)` is what a call is about, as it was made: on an instance or a class, if it is a method."""
        leading, payload = self.arguments.leading, self.arguments.payload
        return (lambda args, kwargs: payload(args[leading:], kwargs)) if leading else payload

    def resolved(self) -> Resolved:
        """Return the policy with all its fields. Raises `ConfigurationError` when they and the settings contradict."""
        try:
            return conf.resolve(self.policy)
        except ValueError as error:
            raise ConfigurationError(f"{self.name}: {error}") from error

    def ask(self, takeover: Takeover) -> Any:
        """Return what `on_takeover` says; of a coroutine function, a coroutine."""
        assert self.on_takeover is not None
        return self.on_takeover(takeover)

    @property
    def scope(self) -> str:
        """Whose keys these are: this function's, in the realm of here and now. Raises `ConfigurationError`."""
        return self.scope_under(self.resolved())

    def scope_under(self, policy: Resolved) -> str:
        """See scope, where the policy is resolved already."""
        realm = realm_of(policy, None)
        return self._own_scope if realm is None else qualified(f"call:{self.name}", realm=realm)

    @cached_property
    def _own_scope(self) -> str:
        return qualified(f"call:{self.name}")


def declared() -> list[Terms]:
    """Return the terms of every guarded function that has been imported, by name."""
    return sorted(_DECLARED, key=lambda terms: terms.name)


def kept(exceptions: Any) -> tuple[type[Exception], ...]:
    """Return `keep_exceptions` as a tuple; one class may be given as it is. Raises `TypeError` for what is no class."""
    classes = (
        tuple(exceptions) if isinstance(exceptions, Iterable) and not isinstance(exceptions, type) else (exceptions,)
    )
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, Exception)):
            raise TypeError(f"keep_exceptions takes classes of exceptions, such as (CardDeclined,), not {cls!r}.")
    return classes


def policy_of(**fields: Any) -> Policy:
    """Make the policy of those fields that were given. Raises `ValueError` with a sentence that says what to type."""
    return Policy(**{name: value for name, value in fields.items() if value is not MISSING})
