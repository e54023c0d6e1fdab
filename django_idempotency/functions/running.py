"""Runs a guarded call from claim to settle, sync and async. `endings` decides what to store."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from asgiref.sync import sync_to_async

from ..core.concurrency.cancellation import run_to_completion
from ..core.contradictions import async_contradiction
from ..core.rules import Execute
from ..engine.lease import LeaseOperation
from ..errors import ConfigurationError, DeadlinePassed, StoreUnavailable
from ..extensions import extended
from ..instrumentation.meters import meters
from ..instrumentation.outcomes import MISSING, UNKEYED
from ..runtime import switch
from ..runtime.transactions import arefuse_open_transactions
from .call import FunctionCall, source_of
from .current import SwitchedOffOperation, Unguarded
from .endings import CallEnd, asettle, end_decided, end_of_error, end_of_result, end_undecided, leaving, settle
from .keys import best_effort_key, go_without_key, key_of
from .replaying import replayed
from .terms import FunctionTerms


def begin(
    terms: FunctionTerms, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str | None, reports: bool = True
) -> FunctionCall | SwitchedOffOperation | Unguarded:
    """Return the call, or the context in which to run the function unguarded. Raises only before anything has run."""
    payload = terms.payload(args, kwargs)
    if not switch.enabled():
        switch.warn_once()
        off: SwitchedOffOperation = extended(SwitchedOffOperation)(terms.scope, key or best_effort_key(terms, payload))
        return off
    if key is None and (key := key_of(terms, payload)) is None:
        if meters.active:
            required = terms.resolved().required is True
            meters.request(source_of(terms), MISSING if required else UNKEYED)
        go_without_key(terms)
        return Unguarded()
    return FunctionCall(terms, payload, key, reports=reports)


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
    try:
        verdict = call.operation.open(call.patience)
    except StoreUnavailable as error:
        call.go_without_store(error)
        with call.running(args, kwargs):
            return call.terms.function(*args, **kwargs), False
    if not isinstance(verdict, Execute):
        return replayed(call, verdict), True
    if call.hurries and call.is_late():
        call.operation.abandon()
        raise DeadlinePassed
    call.count(verdict)
    end = None if call.terms.on_takeover is None else _decide(call)
    if end is None:
        end = _work(call, args, kwargs)
    settle(call, end)
    return end.result(), False


def _decide(call: FunctionCall) -> CallEnd | None:
    """Ask `on_takeover` if this is a takeover. `None`: the function runs."""
    takeover = call.takeover()
    if takeover is None:
        return None
    try:
        with takeover:
            return end_decided(call, call.terms.ask(takeover))
    except BaseException as error:  # noqa: BLE001 - raised again
        settle(call, end_undecided(call, error))
        raise leaving(call, error)  # noqa: B904 - its cause is its own


def _work(call: FunctionCall, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CallEnd:
    try:
        with call.running(args, kwargs):
            return end_of_result(call, call.terms.function(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - raised again
        call.course.left_by(error)
        settle(call, end_of_error(call, error))
        raise leaving(call, error)  # noqa: B904 - its cause is its own


# -------------------------------------------------------------------------------------------------------------- async


async def arun(
    terms: FunctionTerms, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str | None = None, reports: bool = True
) -> tuple[Any, bool]:
    """See run(). A cancellation never frees a key early."""
    call = begin(terms, args, kwargs, key, reports)
    if not isinstance(call, FunctionCall):
        with call:
            return await terms.function(*args, **kwargs), False
    if not isinstance(call.operation, LeaseOperation):
        raise ConfigurationError(async_contradiction(terms.name, fix='Type guarantee="lease".'))
    await arefuse_open_transactions()
    try:
        verdict = await call.operation.aopen(call.patience)
    except StoreUnavailable as error:
        await call.ago_without_store(error)
        with call.running(args, kwargs):
            return await terms.function(*args, **kwargs), False
    if not isinstance(verdict, Execute):
        if call.terms.loads:  # it may query the ORM, which refuses calls from an event loop
            return await sync_to_async(replayed)(call, verdict), True
        return replayed(call, verdict), True
    if call.hurries and call.is_late():
        await run_to_completion(call.operation.aabandon())
        raise DeadlinePassed
    call.count(verdict)
    end = None if call.terms.on_takeover is None else await _adecide(call)
    if end is None:
        end = await _awork(call, args, kwargs)
    await asettle(call, end)
    return end.result(), False


async def _adecide(call: FunctionCall) -> CallEnd | None:
    """See _decide()."""
    takeover = call.takeover()
    if takeover is None:
        return None
    try:
        with takeover:
            decision = call.terms.ask(takeover)
            return end_decided(call, await decision if inspect.isawaitable(decision) else decision)
    except BaseException as error:
        await asettle(call, end_undecided(call, error))
        raise


async def _awork(call: FunctionCall, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CallEnd:
    """See _work()."""
    try:
        with call.running(args, kwargs):
            return end_of_result(call, await call.terms.function(*args, **kwargs))
    except GeneratorExit as closed:  # nothing can be awaited any more, and an aborted run writes nothing
        settle(call, end_of_error(call, closed))
        raise
    except BaseException as error:  # noqa: BLE001 - raised again
        await call.course.aleft_by(error)
        await asettle(call, end_of_error(call, error))
        raise leaving(call, error)  # noqa: B904 - the same
