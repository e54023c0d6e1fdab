"""Columns of other apps' tables: sealed with ENCRYPTION_KEYS, if a key seals, for their place; and
sealed anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .encryption import opened, sealing
from .sealed import CannotOpen, Resealing

#: What begins a value that is not sealed, and one that is.
_PLAIN = b"0"
_SEALED = b"1"


def seal(value: bytes, *place: bytes) -> bytes:
    """Return a value as it is stored at its place."""
    ring = sealing()
    return _PLAIN + value if ring is None else _SEALED + ring.seal(value, *place)


def unseal(stored: bytes, *place: bytes) -> bytes:
    """Return what was stored at a place. Raises `CannotOpen`."""
    stored = bytes(stored)  # psycopg 2 and MySQL drivers return other types
    return stored[1:] if stored[:1] == _PLAIN else opened(stored[1:], *place)


def reseal(
    rows: Any,
    columns: Sequence[str],
    place: Callable[[Any, str], tuple[bytes, ...]],
    *,
    size: int,
    dry: bool,
) -> Iterator[Counter[Resealing]]:
    """Write columns of a queryset as they would be written now. Yield what became of each batch.

    `place` is that of a row's column. What changes meanwhile is left as it is then.
    """
    for some in batches(rows, size):
        yield Counter(
            _resealed(rows, row, name, *place(row, name), dry=dry)
            for row in some
            for name in columns
        )


def _resealed(rows: Any, row: Any, name: str, *place: bytes, dry: bool) -> Resealing:
    stored = getattr(row, name)
    if stored is None or _is_current(bytes(stored)):
        return Resealing.CURRENT
    try:
        again = seal(unseal(stored, *place), *place)
    except CannotOpen:
        return Resealing.CLOSED
    if not dry and not rows.filter(pk=row.pk, **{name: stored}).update(**{name: again}):
        return Resealing.CHANGED
    return Resealing.DONE


def _is_current(stored: bytes) -> bool:
    ring = sealing()
    return (
        stored[:1] == _PLAIN
        if ring is None
        else stored[:1] == _SEALED and ring.is_current(stored[1:])
    )


def batches(rows: Any, size: int) -> Iterator[list[Any]]:
    """Yield all rows of a queryset by their primary keys, `size` at a time."""
    rows = rows.order_by("pk")
    some = list(rows[:size])
    while some:
        yield some
        some = list(rows.filter(pk__gt=some[-1].pk)[:size])
