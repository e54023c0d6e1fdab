"""What names a call: the digest of what is selected from its payload."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any
from uuid import uuid4

from ..core.canonical import Undigestible, digest, is_missing, meaning
from ..core.hashing import request_digest
from ..errors import IdempotencyError, KeyMalformed, KeyMissing, NotDigestible
from .terms import Terms

logger = logging.getLogger("django_idempotency")

MAX_KEY = 255
#: The digest of a call that is bound by its key alone.
UNBOUND = request_digest(b"call")


def key_of(terms: Terms, payload: Any) -> str | None:
    """Return the key of a payload: the digest of what is selected from it; `None`: it has none.

    Raises `NotDigestible` for what has no meaning that could be hashed, and what the selector raises.
    """
    try:
        if terms.key is None:
            # All arguments together are never missing in part: `None` is what many default to.
            return None if is_missing(payload, parts=False) else digest(payload, terms.algorithm)
        selected = terms.key(payload)
        return None if terms.key.is_missing(selected) else digest(selected, terms.algorithm)
    except Undigestible as error:
        raise NotDigestible(f"{terms.name}: {error}") from error


def go_without_key(terms: Terms) -> None:
    """Tell of a call that has no key and runs unguarded. Raises `KeyMissing` where one is required."""
    if terms.resolved().required:
        raise KeyMissing(
            f"This call of {terms.name} has no idempotency key: what identifies it is missing, or part of it."
        )
    logger.warning("%s runs unguarded: what identifies this call is missing, or part of it.", terms.name)


def unjudged(terms: Terms, payload: Any) -> str:
    """Return the key of a payload that nobody asks about; something new where it has none."""
    key = None
    with suppress(IdempotencyError):
        key = key_of(terms, payload)
    return key or uuid4().hex


def explicit(key: Any) -> str:
    """Return a key that was given as such. Raises `KeyMalformed`."""
    if not (isinstance(key, str) and 0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        raise KeyMalformed(
            "An idempotency key is 1 to 255 printable ASCII characters. derive_key() makes one of anything."
        )
    return key


def derive_key(*parts: Any) -> str:
    """Return the key of some values, by type and meaning: 64 hex digits, the same in every process and release.

    It is no secret: who knows the parts knows the key. Raises `NotDigestible`.
    """
    try:
        return digest(parts)
    except Undigestible as error:
        raise NotDigestible(str(error)) from error


def digest_of(terms: Terms, payload: Any) -> bytes:
    """Return what binds a call beside its key: the meaning of what `validate` selects. Raises `NotDigestible`."""
    if terms.validate is None:
        return UNBOUND
    try:
        return request_digest(b"call", meaning(terms.validate(payload)))
    except Undigestible as error:
        raise NotDigestible(f"{terms.name}: {error}") from error
