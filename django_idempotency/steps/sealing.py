"""Results and arguments at rest: sealed with ENCRYPTION_KEYS, if there are any, for their place."""

from __future__ import annotations

from uuid import UUID

from ..runtime.encryption import keyring
from ..stores.sealed import CannotOpen, Keyring

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
