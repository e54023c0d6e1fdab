"""Results and arguments at rest: sealed with ENCRYPTION_KEYS, if there are any, for their place; and read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ...core.records import shortened
from ...core.serialization.results import Unreadable, load_error
from ...errors import StepResultNotStored
from ..at_rest import columns
from ..at_rest.sealed import CannotOpen
from .terms import StepTerms, function_at


def seal(value: bytes, run: UUID, position: int, what: str) -> bytes:
    """Return a value as it is stored."""
    return columns.seal(value, *place(run, position, what))


def unseal(stored: bytes, run: UUID, position: int, what: str) -> bytes:
    """Return what was stored. Raises `CannotOpen`."""
    return columns.unseal(stored, *place(run, position, what))


def place(run: UUID, position: int, what: str) -> tuple[bytes, ...]:
    """Return the place of a column of a step."""
    return b"step", run.bytes, b"%d" % position, what.encode()


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
