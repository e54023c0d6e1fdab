"""What a view says about one step, checked before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from django.utils.module_loading import import_string

from ...core.serialization.results import Results, results_for
from ...errors import ConfigurationError
from ...functions.terms import exception_classes
from .rules import Repeats

#: The argument in which a function that calls elsewhere gets the step's key.
KEY_ARGUMENT = "idempotency_key"
#: What is said of a step: any other keyword is for its function.
OPTIONS = ("undo", "at", "ask", "here", "keep", "retry")
#: The longest name (characters).
LONGEST_NAME = 100


@dataclass(frozen=True, kw_only=True)
class StepTerms:
    """The terms of one step, as it was called. Raises `ConfigurationError` for terms that can never
    work.

    Raises `TypeError` if `keep` has something that is not a class of exceptions.
    """

    name: str
    #: `None`: a block.
    function: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    at: str = Repeats.AT_LEAST_ONCE.value
    ask: Callable[..., Any] | None = None
    #: See `is_here`. `None`: the function's arguments say so.
    here: bool | None = None
    #: The exceptions that are its result: nothing was done.
    keep: tuple[type[Exception], ...] = ()
    retry: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        name = self.name
        try:
            Repeats(self.at)
        except ValueError:
            raise ConfigurationError(
                f'step({name!r}, at={self.at!r}): at is "least_once" or "most_once".'
            ) from None
        says = f"step({name!r}): keep takes classes of exceptions, such as (SoldOut,)"
        object.__setattr__(self, "keep", exception_classes(self.keep, says))
        if self.here and self.function is None:
            raise ConfigurationError(
                f"step({name!r}, here=True) as a block: what writes here is given as a function."
            )
        self._refuse_signatures()
        if not name.strip() or len(name) > LONGEST_NAME:
            raise ConfigurationError(
                f"A step's name is a text of 1 to {LONGEST_NAME} characters, not {name!r}."
            )
        if self.is_here and self.repeats is Repeats.AT_MOST_ONCE:
            raise ConfigurationError(
                f'step({name!r}, at="most_once") writes here, so it is done exactly once '
                "without it: leave it out."
            )
        if self.ask is not None and self.is_here:
            raise ConfigurationError(
                f"step({name!r}, ask=…) writes here: it never breaks off halfway."
            )
        for given, what in ((self.undo, "undo"), (self.ask if self.undo else None, "ask")):
            if given is not None and path_of(given) == "":
                raise ConfigurationError(
                    f"step({name!r}, {what}={given!r}): another process may have to call "
                    "it, so give a function of a "
                    "module, not a lambda, a method or a function inside another."
                )

    def _refuse_signatures(self) -> None:
        name = self.name
        function = self.function
        for given in (function if self.here is None else None, self.undo):
            if given is not None and takes_anything(given):
                raise ConfigurationError(
                    f"step({name!r}): {given!r} takes any keyword, so nobody can tell "
                    f"whether it wants {KEY_ARGUMENT}. Wrap it "
                    f"in a function that says so, such as def {name.replace('-', '_')}(…, "
                    f"*, {KEY_ARGUMENT})."
                )
        if (
            function is not None
            and not self.is_here
            and is_lambda(function)
            and not takes_key(function)
        ):
            raise ConfigurationError(
                f"step({name!r}): {function!r} has no argument {KEY_ARGUMENT}, so it "
                "cannot get the step's key, and a repetition "
                f"would be another call. Write def {name.replace('-', '_')}(…, *, {KEY_ARGUMENT})."
            )

    @cached_property
    def is_here(self) -> bool:
        """Does it write to the database of the steps, in one transaction with its result?"""
        return (
            (self.function is not None and not takes_key(self.function))
            if self.here is None
            else self.here
        )

    @property
    def repeats(self) -> Repeats:
        """What it may do that broke off."""
        return Repeats(self.at)

    @property
    def starts(self) -> bool:
        """Is its start committed before its body runs?

        If it were not, a crash would leave nothing to undo or to ask about.
        """
        return not self.is_here and (self.undo is not None or self.repeats is Repeats.AT_MOST_ONCE)

    @property
    def results(self) -> Results:
        """How its results are stored. An undo may have to read them in another process."""
        return results_of(
            None if self.undo is not None and path_of(self.function) == "" else self.function
        )


def takes_key(function: Callable[..., Any]) -> bool:
    """Does a function have an argument for the step's key? Then it calls elsewhere."""
    return KEY_ARGUMENT in (_parameters(function) or ())


def takes_anything(function: Callable[..., Any]) -> bool:
    """Does a function take any keyword, and not the key by its name?"""
    parameters = _parameters(function)
    if parameters is None:
        return True
    return KEY_ARGUMENT not in parameters and any(
        each.kind is each.VAR_KEYWORD for each in parameters.values()
    )


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have none
        return None


def is_lambda(function: Callable[..., Any]) -> bool:
    """Is it a function without a name?"""
    return getattr(function, "__name__", "") == "<lambda>"


def path_of(function: Callable[..., Any] | None) -> str:
    """Return the dotted path under which another process finds a function; "" if there is none."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    if function is None or not module or "<" in name:
        return ""
    try:
        return f"{module}.{name}" if import_string(f"{module}.{name}") is function else ""
    except ImportError:
        return ""


def function_at(path: str) -> Callable[..., Any] | None:
    """Return the function of a path, or `None`. Raises `ImportError` if it is gone."""
    found: Callable[..., Any] | None = import_string(path) if path else None
    return found


@lru_cache(maxsize=512)
def results_of(function: Callable[..., Any] | None) -> Results:
    """Return how the results of a step's function are stored. Those of a block are plain data."""
    return results_for(_untyped if function is None else function)


def _untyped() -> None: ...
