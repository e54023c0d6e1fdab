"""interrupt_at(): a view or function breaks off at one of its steps, as if its process had died there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from ..engine.borders import Border, watched_by


class Interrupted(BaseException):
    """The attempt breaks off here. No `except Exception` catches it, so the record is left as by a crash."""


@contextmanager
def interrupt_at(step: str, /, *, when: Literal["before", "during", "after"] = "during") -> Iterator[None]:
    """Raise `Interrupted` wherever an attempt reaches that place of the step, in every thread, until the block ends.

    `when` is "before" (its body has not begun; its start is committed, if it has one), "during" (its body has ended, and
    its result is not stored) or "after" (its result is committed). "undo charge" is the undo of the step "charge".

    Raises `ValueError` for another `when`, and `AssertionError` at the end of the block if nothing came to the place.
    """
    try:
        border = Border(when)
    except ValueError:
        raise ValueError(f'when is "before", "during" or "after", not {when!r}.') from None
    others: list[str] = []
    hits = 0

    def watch(name: str, place: Border) -> None:
        nonlocal hits
        if name == step and place is border:
            hits += 1
            raise Interrupted(f"{border} the step {step!r}")
        others.append(f"{place} {name!r}")

    with watched_by(watch):
        yield
    if not hits:
        seen = f"These were: {', '.join(dict.fromkeys(others))}." if others else "No step was."
        raise AssertionError(f"{border} the step {step!r}: this place was not reached. {seen}")
