"""The arguments of a guarded call at rest, and how a command finishes one whose process died
between two steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from asgiref.sync import async_to_sync

from ...api import Record, setting
from ...core.serialization.results import Results, Unreadable, Unstorable
from ...errors import IdempotencyError, OperationCancelled
from ...functions.running import arun, run
from ...functions.terms import FunctionTerms, declared
from ..at_rest.encryption import sealing


def dump_call(
    terms: FunctionTerms, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bytes | None:
    """Return a call as bytes; `None`: its arguments cannot be stored, or must not be.

    Those of a method belong to an object. Keys that are hashed are made of arguments, which are
    stored only if sealed.
    """
    hidden = setting("HASH_KEYS") and sealing() is None
    if terms.arguments.leading or hidden or not terms.resolved().store_body:
        return None
    try:
        return _format(terms).dump([terms.scope, key, list(args), dict(kwargs)])
    except Unstorable:
        return None


def finish(record: Record, stored: bytes) -> str:
    """Call a function again, under its key.

    Return why that is not possible; "": it is done. Raises what it raises.
    """
    terms = next((each for each in declared() if each.name == record.path), None)
    if terms is None:
        return f"no guarded function {record.path!r} is imported here"
    try:
        scope, key, args, kwargs = _format(terms).load(stored)
    except Unreadable as error:
        return f"its arguments cannot be read: {error}"
    if scope != terms.scope:
        return "it runs in another realm"
    ended: tuple[type[Exception], ...] = (OperationCancelled, *terms.kept)
    try:
        (async_to_sync(arun) if terms.is_async else run)(
            terms, tuple(args), kwargs, key, reports=False
        )
    except ended:
        return ""
    except IdempotencyError as error:
        return f"{type(error).__name__}: {error}"
    return ""


@lru_cache(maxsize=256)
def _format(terms: FunctionTerms) -> Results:
    return Results(lambda named: named.follow(terms.function, returned=False), root="arguments")
