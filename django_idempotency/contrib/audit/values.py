"""Business ids: what they may look like, how they are typed, and by which hash they are found."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Any
from uuid import UUID

from ...core.hashing import framed, octets

#: The longest value (characters).
LONGEST = 255
_KIND = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


def named(kind: Any, value: Any) -> tuple[str, str]:
    """Return the kind in lower case and the value as text. Raises `ValueError` for what cannot be kept."""
    if not isinstance(kind, str) or _KIND.fullmatch(kind.lower()) is None:
        raise ValueError(
            f'A kind is a letter and up to 63 more letters, digits, "_", "." and "-", such as "payment": not {kind!r}.'
        )
    text = "" if value is None else str(value)
    if not 1 <= len(text) <= LONGEST or not text.isprintable():
        raise ValueError(f"The value of a reference has 1 to {LONGEST} printable characters: {text[:LONGEST]!r}.")
    return kind.lower(), text


def parsed(term: str) -> tuple[str, str] | None:
    """Return the kind and the value of what a person types, such as `payment:17`; `None`: it is not a reference."""
    kind, colon, value = term.strip().partition(":")
    try:
        return named(kind, value) if colon else None
    except ValueError:
        return None


def value_hash(value: str, secret: str | bytes | None = None) -> UUID:
    """Return the hash that a value is found by; with a `secret` one that cannot be compared with a guess."""
    message = framed((b"reference", value.encode("utf-8", "surrogatepass")))
    digest = hashlib.sha256(message) if secret is None else hmac.new(octets(secret), message, hashlib.sha256)
    return UUID(bytes=digest.digest()[:16], version=5)
