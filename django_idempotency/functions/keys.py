"""The key of a call: the digest of what is selected from its payload."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any
from uuid import uuid4

from ..core.canonical import UnhashableValue, canonical_bytes, digest, is_missing
from ..core.hashing import request_digest
from ..errors import IdempotencyError, KeyMalformed, KeyMissing, UnhashablePayload
from .terms import FunctionTerms

logger = logging.getLogger("django_idempotency")

MAX_KEY = 255
#: The request digest of a call that is identified by its key alone.
UNBOUND = request_digest(b"call")


def key_of(terms: FunctionTerms, payload: Any) -> str | None:
    """Return the key of a payload, the digest of what is selected from it; `None` if it has none.

    Raises `UnhashablePayload` for values that cannot be hashed, and anything that the selector raises.
    """
    try:
        if terms.key is None:
            # When all arguments are the key, none counts as missing: many default to `None`.
            return None if is_missing(payload, parts=False) else digest(payload, terms.algorithm)
        selected = terms.key(payload)
        return None if terms.key.is_missing(selected) else digest(selected, terms.algorithm)
    except UnhashableValue as error:
        raise UnhashablePayload(f"{terms.name}: {error}") from error


def go_without_key(terms: FunctionTerms) -> None:
    """Report a call without a key, which runs unguarded. Raises `KeyMissing` if a key is required."""
    if terms.resolved().required is True:
        raise KeyMissing(
            f"This call of {terms.name} has no idempotency key: what identifies it is missing, or part of it."
        )
    logger.warning("%s runs unguarded: what identifies this call is missing, or part of it.", terms.name)


def best_effort_key(terms: FunctionTerms, payload: Any) -> str:
    """Return the key of a payload while idempotency is off; a new one if it has none."""
    key = None
    with suppress(IdempotencyError):
        key = key_of(terms, payload)
    return key or uuid4().hex


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


def digest_of(terms: FunctionTerms, payload: Any) -> bytes:
    """Return the digest of what `validate` selects, which must not change for a key. Raises `UnhashablePayload`."""
    if terms.validate is None:
        return UNBOUND
    try:
        return request_digest(b"call", canonical_bytes(terms.validate(payload)))
    except UnhashableValue as error:
        raise UnhashablePayload(f"{terms.name}: {error}") from error
