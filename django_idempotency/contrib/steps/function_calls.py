"""Finish a guarded call whose process died between two steps."""

from __future__ import annotations

from asgiref.sync import async_to_sync

from ...core.records import Record
from ...core.serialization.results import Unreadable
from ...errors import IdempotencyError, OperationCancelled
from ...functions.running import arun, run
from ...functions.terms import declared
from .stored_calls import load_call


def finish(record: Record, stored: bytes) -> str:
    """Call a function again, under its key. Return why that is not possible; "": it is done. Raises what it raises."""
    terms = next((each for each in declared() if each.name == record.path), None)
    if terms is None:
        return f"no guarded function {record.path!r} is imported here"
    try:
        call = load_call(terms, stored)
    except Unreadable as error:
        return f"its arguments cannot be read: {error}"
    if call.scope != terms.scope:
        return "it runs in another realm"
    ended: tuple[type[Exception], ...] = (OperationCancelled, *terms.kept)
    try:
        runs = async_to_sync(arun) if terms.is_async else run
        runs(terms, tuple(call.args), call.kwargs, call.key, reports=False)
    except ended:
        return ""
    except IdempotencyError as error:
        return f"{type(error).__name__}: {error}"
    return ""
