"""Runs a guarded call: find it, open, replay or work, settle. `call` prepares it, and `endings` decides what is stored."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from os import environ
from typing import Any

from asgiref.sync import sync_to_async

from ..core.rules import Execute
from ..engine.lease import LeaseOperation
from ..errors import StoreUnavailable
from ..runtime import switch
from ..runtime.derivation import Unstored
from ..runtime.transactions import arefuse_open_transactions
from ..runtime.wings import extended
from .call import FunctionCall, best_effort_key, go_without_key, key_of, plan_of
from .current import CurrentOperation, Unguarded
from .endings import asettle, end_of_error, end_of_result, leaving, replayed, settle
from .terms import FunctionTerms


def keyed(terms: FunctionTerms, key: str | None) -> Callable[..., Any]:
    """Return the guarded function, under a key of its own or (`None`) the selected one."""
    if terms.is_async:

        @functools.wraps(terms.function)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            return (await arun(terms, args, kwargs, key))[0]

        return acall

    @functools.wraps(terms.function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return run(terms, args, kwargs, key)[0]

    return call


def begin(
    terms: FunctionTerms, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str | None, reports: bool = True
) -> FunctionCall | CurrentOperation | Unguarded:
    """Return the call, or the context in which to run the function unguarded. Raises only before anything has run."""
    payload = terms.payload(args, kwargs)
    if (switch.overrides or environ.get(switch.VARIABLE)) and not switch.enabled():
        switch.warn_once()
        off: CurrentOperation = extended(CurrentOperation)(
            Unstored(terms.scope, key or best_effort_key(terms, payload))
        )
        return off
    if key is None and (key := key_of(terms, payload)) is None:
        go_without_key(terms)
        return Unguarded()
    return FunctionCall(plan_of(terms), payload, key, reports=reports)


# --------------------------------------------------------------------------------------------------------------- sync


def run(
    terms: FunctionTerms, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str | None = None, reports: bool = True
) -> tuple[Any, bool]:
    """Run a call, or replay the first one. Return the result, and whether it is a replay. `reports`: see `FunctionCall`.

    Raises `InProgress`, `RequestMismatch`, `ResponseNotStored`, `HeldForPerson`, `StoreUnavailable`, the function's own
    exceptions, and those of `AtomicOperation.settle`.
    """
    call = begin(terms, args, kwargs, key, reports)
    if not isinstance(call, FunctionCall):
        with call:
            return terms.function(*args, **kwargs), False
    try:
        return _run(call, args, kwargs)
    except BaseException:
        call.operation.close()
        raise


def _run(call: FunctionCall, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, bool]:
    terms = call.terms
    try:
        verdict = call.operation.open(call.plan.patience)
    except StoreUnavailable as error:
        call.go_without_store(error)
        with call.running(args, kwargs):
            return terms.function(*args, **kwargs), False
    if not isinstance(verdict, Execute):
        return replayed(call, verdict), True
    if call.plan.source is not None:
        call.count(verdict)
    end = call.plan.takeovers.decide(call) if verdict.takeover and call.plan.takeovers is not None else None
    if end is None:
        try:
            with call.running(args, kwargs):
                end = end_of_result(call, terms.function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised again
            call.course.left_by(error)
            settle(call, end_of_error(call, error))
            raise leaving(call, error)  # noqa: B904 - its cause is its own
    settle(call, end)
    if end.raised is not None:
        raise end.raised
    return end.returned, False


# -------------------------------------------------------------------------------------------------------------- async


async def arun(
    terms: FunctionTerms, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str | None = None, reports: bool = True
) -> tuple[Any, bool]:
    """See run(). A cancellation never frees a key early."""
    call = begin(terms, args, kwargs, key, reports)
    if not isinstance(call, FunctionCall):
        with call:
            return await terms.function(*args, **kwargs), False
    assert isinstance(call.operation, LeaseOperation)  # its plan has seen to that
    await arefuse_open_transactions()
    return await _arun(call, call.operation, args, kwargs)


async def _arun(
    call: FunctionCall, operation: LeaseOperation, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, bool]:
    """See _run()."""
    terms = call.terms
    try:
        verdict = await operation.aopen(call.plan.patience)
    except StoreUnavailable as error:
        await call.ago_without_store(error)
        with call.running(args, kwargs):
            return await terms.function(*args, **kwargs), False
    if not isinstance(verdict, Execute):
        # What the project loads a result with may query the ORM, which refuses calls from an event loop.
        plain = terms.on_replay is None and not terms.results.serialized
        return replayed(call, verdict) if plain else await sync_to_async(replayed)(call, verdict), True
    if call.plan.source is not None:
        call.count(verdict)
    end = await call.plan.takeovers.adecide(call) if verdict.takeover and call.plan.takeovers is not None else None
    if end is None:
        try:
            with call.running(args, kwargs):
                end = end_of_result(call, await terms.function(*args, **kwargs))
        except GeneratorExit as closed:  # nothing can be awaited any more, and an aborted run writes nothing
            settle(call, end_of_error(call, closed))
            raise
        except BaseException as error:  # noqa: BLE001 - raised again
            await call.course.aleft_by(error)
            await asettle(call, end_of_error(call, error))
            raise leaving(call, error)  # noqa: B904 - its cause is its own
    await asettle(call, end)
    if end.raised is not None:
        raise end.raised
    return end.returned, False
