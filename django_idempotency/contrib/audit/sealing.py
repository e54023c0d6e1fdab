"""What may name a person is sealed with ENCRYPTION_KEYS, if there are any: each row for its own place.

Scope and key are as in the record: plain, or hashes with HASH_KEYS.
"""

from __future__ import annotations

import json
from typing import TypeVar

from ... import conf
from ..at_rest.encryption import opened, sealing
from ..at_rest.sealed import CannotOpen
from .models import AppendOnlyModel, Reference
from .values import value_hash

#: What stands in place of something sealed that no key opens.
SEALED = "#sealed"
R = TypeVar("R", bound=AppendOnlyModel)


def seal(row: AppendOnlyModel) -> None:
    """Seal a row before it is written, if a key seals. A reference is found by a keyed hash then."""
    ring, facts = sealing(), [getattr(row, name) for name in row.personal]
    if isinstance(row, Reference):
        row.value_hash = value_hash(row.value, None if ring is None else conf.derive_secret())
    if ring is not None and any(facts):
        _put(row, [""] * len(facts), ring.seal(json.dumps(facts).encode(), *row.place()))


def unseal(row: AppendOnlyModel) -> None:
    """Put back what is sealed. Raises `CannotOpen`."""
    stored: bytes | None = getattr(row, "sealed")  # noqa: B009 - each of the models has it
    if stored is None:
        return
    try:
        facts = json.loads(opened(bytes(stored), *row.place()))
        _put(row, list(map(str, facts)), None)
    except (ValueError, TypeError) as error:
        raise CannotOpen("it was sealed by a later version") from error


def shown(row: R) -> R:
    """Return a row that was read as a person sees it. What no key opens is named as such."""
    try:
        unseal(row)
    except CannotOpen:
        _put(row, [SEALED] * len(row.personal), None)
    return row


def _put(row: AppendOnlyModel, facts: list[str], sealed: bytes | None) -> None:
    for name, value in zip((*row.personal, "sealed"), (*facts, sealed), strict=True):
        setattr(row, name, value)
