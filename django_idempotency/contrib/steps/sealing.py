"""Results and arguments at rest: sealed with ENCRYPTION_KEYS, if there are any, for their place; and read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ...core.records import shortened
from ...core.serialization.results import Unreadable, load_error
from ...errors import StepResultNotStored
from ..at_rest.encryption import keyring
from ..at_rest.sealed import CannotOpen, Keyring
from .terms import StepTerms, function_at

#: What begins a value that is not sealed.
_PLAIN = b"0"
#: What begins a sealed one.
_SEALED = b"1"


def seals() -> bool:
    """Is what is stored sealed?"""
    ring = keyring()
    return ring is not None and ring.seals


def seal(value: bytes, run: UUID, position: int, what: str) -> bytes:
    """Return a value as it is stored."""
    ring = keyring()
    if ring is None or not ring.seals:
        return _PLAIN + value
    return _SEALED + ring.seal(value, *_place(run, position, what))


def unseal(stored: bytes, run: UUID, position: int, what: str) -> bytes:
    """Return what was stored. Raises `CannotOpen`."""
    stored = bytes(stored)  # psycopg 2 and MySQL drivers return other types
    if stored[:1] == _PLAIN:
        return stored[1:]
    ring = keyring()
    if ring is None:
        raise CannotOpen("ENCRYPTION_KEYS is empty")
    return ring.open(stored[1:], *_place(run, position, what))


def _place(run: UUID, position: int, what: str) -> tuple[bytes, ...]:
    return b"step", run.bytes, b"%d" % position, what.encode()


def sealed_now(stored: bytes, ring: Keyring | None) -> bool:
    """Is a value stored as it would be written now?"""
    seals = ring is not None and ring.seals
    if stored[:1] == _PLAIN:
        return not seals
    return seals and ring is not None and ring.is_current(stored[1:])


def load(row: Any, terms: StepTerms | None = None) -> Any:
    """Return the result of a row. Raises `StepResultNotStored`. `terms`: without them, its function is imported."""
    try:
        results = (terms or StepTerms(name=row.name, function=function_at(row.function))).results
        return results.load(_stored(row))
    except (Unreadable, ImportError) as error:
        raise StepResultNotStored(
            f"The step {row.name!r} of the record {shortened(str(row.record))} is done, and its result cannot be read: {error}"
        ) from error


def load_kept(row: Any, keep: Sequence[type[Exception]]) -> Exception:
    """Return the stored exception of a row, or a `StepResultNotStored` in its place."""
    try:
        return load_error(_stored(row), keep)
    except Unreadable as error:
        unreadable = StepResultNotStored(f"The step {row.name!r} failed, and how is not stored.")
        unreadable.__cause__ = error
        return unreadable


def _stored(row: Any) -> bytes:
    """Return the plain bytes of a row's result. Raises `Unreadable`."""
    try:
        return unseal(row.result or b"", row.run, row.position, "result")
    except CannotOpen as error:
        raise Unreadable(str(error)) from error
