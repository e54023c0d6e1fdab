"""The decorator `@idempotent_tool()`, around `idempotent_function`: where the key of a call comes
from, and whose it is.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from abc import ABCMeta
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections

from ... import Policy, Tombstones
from ...api import Duration, Guarantee, realm_of, seconds
from ...core.dialects import takes
from ...core.serialization.codecs import BUILTINS, codec_of, name_of
from ...errors import ConfigurationError, IdempotencyError, ScopeRequired
from ...functions import current_operation, derive_key, idempotent_function
from ...functions.running import arun, run
from ...functions.terms import FunctionTerms
from ...scopes import SAID
from . import sdk
from .refusals import problem_of, refusal

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
#: Names whose a key is, from the SDK's `Context`.
Caller = Callable[[Any], str | None]

#: On a decorated function: its `Tool`.
TOOL = "_idempotent_tool"


class NotFinal(IdempotencyError):
    """The tool asks its client for more, or has failed and is rolled back. Its key is free for the
    same call.
    """

    delivery = "failed"

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class Failed(Exception):
    """The tool itself has failed by an error of ours, such as of a call that it makes: no problem
    of its own call.
    """

    def __init__(self, error: IdempotencyError) -> None:
        super().__init__()
        self.error = error


class Call(NamedTuple):
    """One call of a tool."""

    terms: FunctionTerms
    #: `None`: it runs unguarded.
    key: str | None = None
    #: The realm of its key: that of the caller.
    realm: str | None = None
    #: How long a repeated call is the same (seconds), where the key is derived.
    window: float | None = None
    #: The realm around it.
    around: tuple[str | None] | None = None


CALL: ContextVar[Call | None] = ContextVar("django_idempotency_tool_call")
#: Types whose values are stored as they are.
_STORED: tuple[type, ...] = (str, bool, list, type(None), *BUILTINS)
#: An event loop itself holds its tasks weakly.
_AT_WORK: set[asyncio.Future[Any]] = set()


def idempotent_tool(
    *,
    caller: Caller = sdk.authenticated,
    argument: str | None = None,
    derived_for: Duration | None = None,
    exclude: Collection[str] = (),
    **terms: Any,
) -> Callable[[F], F]:
    """Do a tool's call once, however often an agent repeats it.

    It goes below the decorator of `mcp` or `fastmcp`.

    The key is `_meta["idempotency-key"]` of the call, or else its argument of the name `argument`.
    A call with neither runs unguarded (with `required=True` it is refused), unless `derived_for` is
    given: then equal arguments of one caller in one session are one call, until so many seconds
    after it has ended. The window begins with a call that runs, so no clock cuts it; a repetition
    does not prolong it.

    `caller(ctx)` names whose key it is, by default the principal of the access token that the SDK
    has verified; a key that belongs to nobody is refused. For one key all arguments stay the same,
    but for the `Context` and those in `exclude`, such as injected ones. `terms` are the other
    arguments of `idempotent_function`; an async tool needs `guarantee="lease"`.

    A problem becomes a result with `isError` that says what to do (`retry`); a replay has
    `"idempotent-replayed": true` in its `_meta`. Raises `ImproperlyConfigured` and `ValueError`
    here for what never works.
    """
    # Raises ValueError.
    window = None if derived_for is None else seconds(Policy(ttl=derived_for).ttl)
    if iscoroutinefunction(caller) or not takes(caller, 1):
        raise ImproperlyConfigured(
            "@idempotent_tool(caller=…) takes a sync function of the SDK's Context: a "
            "coroutine names nobody."
        )

    def decorate(function: Any) -> Any:
        tool = Tool(
            function, caller=caller, argument=argument, window=window, exclude=exclude, terms=terms
        )

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return tool.call(args, kwargs)

        @functools.wraps(function)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            return await tool.acall(args, kwargs)

        guarded = acall if tool.terms.is_async else call
        vars(guarded)[TOOL] = tool
        return guarded

    return decorate


class Tool:
    """A guarded tool."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        caller: Caller,
        argument: str | None,
        window: float | None,
        exclude: Collection[str],
        terms: Mapping[str, Any],
    ) -> None:
        self.function = function
        self.caller = caller
        self.argument = argument
        self.window = window
        self.context, self.sdk = sdk.context_argument(function)
        self.left_out = {self.context, *exclude}
        names = {*exclude, *([argument] if argument else [])}
        if unknown := names - inspect.signature(function).parameters.keys():
            raise ImproperlyConfigured(
                f"@idempotent_tool() on {function.__qualname__}: it has no argument "
                f"{', '.join(sorted(unknown))}."
            )
        if terms.get("serializer") is None:
            refuse_unstorable(function)
        guarded: Any = idempotent_function(key=lambda _: None, validate=self.compared, **terms)(
            self.body()
        )
        self.terms: FunctionTerms = guarded.idempotency._terms  # noqa: SLF001 - ours
        if window is not None:  # of derived keys, which are as new when it has passed
            policy = self.terms.policy
            extensions = policy.given().get("extensions", ())
            others = [each for each in extensions if not isinstance(each, Tombstones)]
            policy = replace(policy, extensions=[*others, Tombstones(None)])
            self.derived = replace(self.terms, name=f"{self.terms.name}:derived", policy=policy)

    @functools.cached_property
    def convert(self) -> Callable[[Any], Any]:
        """Return what makes the SDK's result of a stored one."""
        return sdk.converter(self.function, self.sdk)

    def is_once(self) -> bool:
        """Is no repeated call carried out again?

        One with neither a key nor a derived one would be.
        """
        return self.window is not None or self.terms.resolved().required is True

    # ----------------------------------------------------------------------------- which call it is

    def compared(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that must stay the same for a key."""
        return {name: value for name, value in arguments.items() if name not in self.left_out}

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """Return a call.

        Raises `KeyMalformed`, `ScopeRequired`, and what hashing and `caller` raise.
        """
        arguments = self.terms.payload(args, kwargs)
        context = arguments.get(self.context)
        terms = self.terms
        sent = sdk.sent_key(context)
        if sent is None and self.argument is not None:
            sent = arguments.get(self.argument)
        if sent is not None:
            key = sdk.well_formed(sent)
        elif self.window is not None:
            key = derive_key(sdk.session(context), self.compared(arguments))
            terms = self.derived
        else:
            return Call(terms, around=SAID.get())
        named: Any = self.caller(context)
        if named is None:
            raise ScopeRequired
        if not isinstance(named, str) or not named:
            raise ConfigurationError(
                f"{self.terms.name}: caller returns text, or None, not {named!r}."
            )
        tenant = realm_of(self.terms.resolved(), None)
        realm = f"caller:{named}" if tenant is None else json.dumps([tenant, named])
        return Call(terms, key, realm, self.window if sent is None else None, SAID.get())

    @contextmanager
    def calling(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Call]:
        """Read a call, and enter the realm of its caller."""
        call = self.read(args, kwargs)
        outer = CALL.get(None)
        CALL.set(call)
        if call.key is not None:
            SAID.set((call.realm,))
        try:
            yield call
        finally:
            SAID.set(call.around)  # no token: a coroutine may be closed in another context
            CALL.set(outer)

    # -------------------------------------------------------------------------------- how it is run

    def call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of a call, in the SDK's own form where it is not that of the function
        itself.
        """
        refuse_event_loop(self.terms.name)
        close_old_connections()  # no request begins or ends in a thread of the SDK's
        try:
            with self.calling(args, kwargs) as call:
                result, replayed, _ = run(call.terms, args, kwargs, call.key)
        except (IdempotencyError, Failed) as error:
            return answered(error)
        finally:
            close_old_connections()
        return sdk.marked(self.convert(result)) if replayed else result

    async def acall(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """See call().

        It goes on when its caller no longer waits: where a stream breaks, the SDK cancels the call.
        """
        try:
            with self.calling(args, kwargs) as call:
                result, replayed, _ = await to_the_end(arun(call.terms, args, kwargs, call.key))
        except (IdempotencyError, Failed) as error:
            return answered(error)
        return sdk.marked(self.convert(result)) if replayed else result

    def body(self) -> Callable[..., Any]:
        """Return the function as the guard calls it."""

        @functools.wraps(self.function)
        def body(*args: Any, **kwargs: Any) -> Any:
            with working():
                return self.final(self.function(*args, **kwargs))

        @functools.wraps(self.function)
        async def abody(*args: Any, **kwargs: Any) -> Any:
            with working():
                return self.final(await self.function(*args, **kwargs))

        return abody if iscoroutinefunction(self.function) else body

    def final(self, result: Any) -> Any:
        """Return a result.

        Raises `NotFinal` for a question (MCP 2026-07-28), and for a failure that is rolled back.
        """
        undone = sdk.fails(result) and self.terms.resolved().guarantee == Guarantee.ATOMIC
        if undone or sdk.asks(result):
            raise NotFinal(result)
        return result


def refuse_unstorable(function: Callable[..., Any]) -> None:
    """Raise `ImproperlyConfigured` for a tool whose return annotation names a class that cannot be
    stored.
    """
    for cls in unstorable_in(get_type_hints(function).get("return")):
        raise ImproperlyConfigured(
            f"@idempotent_tool() on {function.__qualname__}: it returns a {name_of(cls)}, "
            "which cannot be stored, so no repeated "
            "call would get it. Return plain data or a pydantic model, or give "
            "serializer=(dump, load)."
        )


def unstorable_in(annotation: Any) -> Iterator[type]:
    """Yield the classes in an annotation of which no instance can be stored."""
    for part in get_args(annotation):
        yield from unstorable_in(part)
    if (
        get_origin(annotation) is not None
        or not isinstance(annotation, type)
        or annotation in (Any, object)
    ):
        return
    stands_for_others = isinstance(annotation, ABCMeta)
    if (
        not stands_for_others
        and not issubclass(annotation, _STORED)
        and codec_of(annotation) is None
    ):
        yield annotation


@contextmanager
def working() -> Iterator[None]:
    """Let a tool work in the realm around its call: what it calls has keys of its own, for every
    caller.
    """
    call = CALL.get()
    caller = SAID.get()
    assert call is not None, "it is made by Tool.call()"
    if call.window is not None and (current := current_operation()) is not None:
        current.ttl = call.window
    SAID.set(call.around)
    try:
        yield
    except NotFinal:
        raise
    except IdempotencyError as error:
        raise Failed(error) from None
    finally:
        SAID.set(caller)


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work, which goes on if this task is cancelled: its effect would be had again by the
    call that comes next.
    """

    async def worked() -> T:
        await sync_to_async(close_old_connections)()
        try:
            return await work
        finally:
            await sync_to_async(close_old_connections)()

    task = asyncio.ensure_future(worked())
    _AT_WORK.add(task)
    task.add_done_callback(_AT_WORK.discard)
    return await asyncio.shield(task)


def answered(error: IdempotencyError | Failed) -> Any:
    """Return the result for an error of the guard.

    Raises it if it is the server's own fault, or the tool's.
    """
    if isinstance(error, Failed):
        raise error.error
    if isinstance(error, NotFinal):
        return error.result
    problem = problem_of(error)
    if problem is None:
        raise error
    return sdk.refused(refusal(problem))


def refuse_event_loop(name: str) -> None:
    """Raise `ConfigurationError` where a sync tool would block an event loop, and where Django
    refuses its queries.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        f"{name} is a sync tool, and is called on an event loop, which it would block. Let "
        "the SDK run it in a thread, await "
        'sync_to_async(…)(…), or make it an async tool with guarantee="lease".'
    )
