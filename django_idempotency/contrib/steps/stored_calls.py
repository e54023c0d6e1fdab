"""The arguments of a call at rest, so that a command can finish a call whose process died between two steps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ... import conf
from ...core.serialization.annotations import TypeCollector
from ...core.serialization.results import Results, Unstorable
from ...functions.terms import FunctionTerms
from ..at_rest.encryption import sealing


class StoredCall(NamedTuple):
    """What a call was made with."""

    scope: str
    key: str
    args: list[Any]
    kwargs: dict[str, Any]


def dump_call(terms: FunctionTerms, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes | None:
    """Return a call as bytes; `None`: its arguments cannot be stored, or must not be.

    Those of a method belong to an object. Keys that are hashed are made of arguments, which are stored only if sealed.
    """
    hidden = conf.get("HASH_KEYS") and sealing() is None
    if terms.arguments.leading or hidden or not terms.resolved().store_body:
        return None
    try:
        return _format(terms).dump([terms.scope, key, list(args), dict(kwargs)])
    except Unstorable:
        return None


def load_call(terms: FunctionTerms, stored: bytes) -> StoredCall:
    """Return what dump_call() was given. Raises `Unreadable`."""
    return StoredCall(*_format(terms).load(stored))


@lru_cache(maxsize=256)
def _format(terms: FunctionTerms) -> Results:
    collector = TypeCollector()
    collector.arguments(terms.function)
    return Results(collector.found, root="arguments")
