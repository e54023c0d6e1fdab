"""Keys that a project makes itself."""

from __future__ import annotations

from typing import Any

from ..core.canonical import UnhashableValue, digest
from ..errors import KeyMalformed, UnhashablePayload

MAX_KEY = 255


def validate_key(key: Any) -> str:
    """Return a key that was given explicitly. Raises `KeyMalformed`."""
    if not (isinstance(key, str) and 0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        raise KeyMalformed(
            "An idempotency key is 1 to 255 printable ASCII characters. derive_key() makes one from any values."
        )
    return key


def derive_key(*parts: Any) -> str:
    """Return the key of some values, by type and meaning: 64 hex digits, the same in every process and release.

    It is not a secret: anyone who knows the parts can compute it. Raises `UnhashablePayload`.
    """
    try:
        return digest(parts)
    except UnhashableValue as error:
        raise UnhashablePayload(str(error)) from error
