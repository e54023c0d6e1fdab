"""The `@idempotent_function` decorator: for tasks, message handlers, webhooks, commands."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from django.core.exceptions import ImproperlyConfigured
from django.utils.decorators import method_decorator
from jmespath import Options
from jmespath.functions import Functions

from ..core.canonical import hasher
from ..core.policy import Duration, Policy, refuse_unknown
from ..core.records import MISSING, Guarantee
from ..core.selectors import Selector, simple
from ..core.serialization.results import results_for
from ..engine.extensions import Extension
from .arguments import Arguments
from .handle import Handle
from .names import name_of, refuse_registered, validate_key
from .running import keyed
from .terms import FunctionTerms, OnReplay, OnTakeover, exception_classes

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Selecting = str | Callable[[Any], Any]

#: The fields of a policy that mean something for a function, beside `ttl`: that is `expires_after`.
OF_POLICY = {
    "required",
    "guarantee",
    "lease",
    "store",
    "wait",
    "on_failure",
    "on_store_failure",
    "max_body",
    "extensions",
}


class Guarded(Protocol[P, R_co]):
    """A guarded function: called as before, with access to the records of its calls."""

    #: The records of its calls.
    idempotency: Handle

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def __get__(self, instance: object, owner: type | None = None) -> Guarded[..., R_co]: ...

    def with_key(self, key: str) -> Callable[P, R_co]:
        """Return the function under this key instead of the selected one.

        For a method it then takes `self` first.
        """
        ...


@overload
def idempotent_function(function: Callable[P, R_co], /) -> Guarded[P, R_co]: ...


@overload
def idempotent_function(
    *,
    key: Selecting | None = ...,
    validate: Selecting | None = ...,
    data_keyword_argument: str | None = ...,
    required: bool = ...,
    key_prefix: str | None = ...,
    hash_function: str = ...,
    jmespath_functions: Functions | type[Functions] | None = ...,
    jmespath_options: Options | None = ...,
    expires_after: Duration = ...,
    guarantee: Guarantee | str = ...,
    lease: Duration = ...,
    store: str = ...,
    wait: Duration = ...,
    on_failure: str = ...,
    on_store_failure: str = ...,
    max_body: int | None = ...,
    serializer: Any = ...,
    keep_exceptions: Sequence[type[Exception]] | type[Exception] = ...,
    on_replay: OnReplay | None = ...,
    on_takeover: OnTakeover | None = ...,
    extensions: Sequence[Extension] = ...,
) -> Callable[[Callable[P, R_co]], Guarded[P, R_co]]: ...


def idempotent_function(
    function: Any = None,
    /,
    *,
    key: Selecting | None = None,
    validate: Selecting | None = None,
    data_keyword_argument: str | None = None,
    key_prefix: str | None = None,
    hash_function: str = "sha256",
    jmespath_functions: Functions | type[Functions] | None = None,
    jmespath_options: Options | None = None,
    expires_after: Any = MISSING,
    serializer: Any = None,
    keep_exceptions: Sequence[type[Exception]] | type[Exception] = (),
    on_replay: OnReplay | None = None,
    on_takeover: OnTakeover | None = None,
    **of_policy: Any,
) -> Any:
    """Make a function safe to call again: sync or async, any kind of method, a task, a handler.

    `key` selects what identifies a call, by JMESPath or a callable, from the arguments by name or
    from the one that `data_keyword_argument` names; `None` selects all of it. `validate` selects
    what must not change for a known key. A call without a key runs unguarded, with a warning;
    `required=True` refuses it. The function's name in the store is `key_prefix`, or module and
    qualified name if those are unique. Later calls return the result of the first one, for
    `expires_after` seconds from its claim; `serializer` is a pair `(dump, load)` for types that
    cannot be deduced from the return annotation. An exception frees the key, except for those in
    `keep_exceptions`, which are stored and raised again. `on_replay(result, record)` returns what a
    replay returns. `on_takeover(takeover)` is asked before a crashed call is run again.
    `of_policy`: those fields of `Policy` that OF_POLICY names.

    Raises `ImproperlyConfigured` or `ValueError` here for arguments that can never work; for calls
    see `functions.running.run`.
    """
    if "ttl" in of_policy:
        raise TypeError("@idempotent_function() takes no ttl. Type expires_after.")
    known = [*OF_POLICY, *(idempotent_function.__kwdefaults__ or ())]
    refuse_unknown(of_policy.keys() - OF_POLICY, known, "@idempotent_function() takes no")
    hasher(hash_function)  # raises ValueError for an unknown name
    if key_prefix == "" or not isinstance(key_prefix, str | None):
        raise TypeError(f'key_prefix is text, such as "charge", not {key_prefix!r}.')

    named = {"functions": jmespath_functions, "options": jmespath_options}
    custom = {name: value for name, value in named.items() if value is not None}
    policy = Policy(ttl=expires_after, **of_policy)
    if custom and not isinstance(key, str) and not isinstance(validate, str):
        idle = f"jmespath_{' and jmespath_'.join(custom)}"
        raise ValueError(
            f"{idle} means nothing without an expression. Type one as key= or validate=, or leave "
            f"{idle} out."
        )
    if serializer is not None and policy.set_by_extension("store_body") is False:
        raise ValueError(
            "serializer means nothing with StatusOnly(), where no result is stored. "
            "Leave one of them out."
        )

    def decorate(undecorated: Any) -> Any:
        if isinstance(undecorated, (staticmethod, classmethod)):
            return type(undecorated)(decorate(undecorated.__func__))
        # A named partial has copied the name from its function, with the signature, so the
        # arguments would be misread.
        # A task of Django's cannot be called.
        is_task = callable(undecorated) or hasattr(undecorated, "func")
        if not is_task or isinstance(undecorated, (type, functools.partial)):
            raise ImproperlyConfigured(
                f"@idempotent_function() needs a function, not {undecorated!r}."
            )
        refuse_registered(undecorated)
        if undecorated.__module__ == method_decorator.__module__:  # its placeholder for the method
            raise ImproperlyConfigured(
                "method_decorator() would decorate again on each call. Put "
                "@idempotent_function on the method itself."
            )
        arguments = Arguments(undecorated, data_keyword_argument)
        owner = None
        if arguments.leading and key_prefix is None:
            owner = f"{undecorated.__module__}.{undecorated.__qualname__.rpartition('.')[0]}"
        return guarded(
            FunctionTerms(
                function=undecorated,
                policy=policy,
                arguments=arguments,
                key=_selector(key, custom),
                validate=_selector(validate, custom),
                algorithm=hash_function,
                results=results_for(undecorated, serializer),
                keep_exceptions=exception_classes(keep_exceptions),
                on_replay=on_replay,
                on_takeover=on_takeover,
                name=name_of(undecorated, key_prefix),
                owner=owner,
            )
        )

    return decorate if function is None else decorate(function)


def _selector(expression: Selecting | None, custom: dict[str, Any]) -> Selector | None:
    """Return what selects by an expression or a callable, with custom functions or options of
    JMESPath.
    """
    if expression is None or isinstance(expression, Selector):
        return expression
    plain = None if custom and isinstance(expression, str) else simple(expression)
    if plain is not None:
        return plain
    from ..core.expressions import Expression  # it loads jmespath

    return Expression(str(expression), **custom)


def guarded(terms: FunctionTerms) -> Any:
    """Return the guarded function: a plain function, as Celery and django.tasks require."""
    function: Any = keyed(terms, None)
    function.idempotency = Handle(terms)
    function.with_key = lambda key: keyed(terms, validate_key(key))
    return function
