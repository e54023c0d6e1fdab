"""What a row says of a step that has ended: its result, or the exception that is its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.records import shortened
from ..errors import StepResultNotStored
from ..serialization.results import Unreadable, load_error
from ..stores.sealed import CannotOpen
from .sealing import unseal
from .terms import StepTerms, function_at


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
