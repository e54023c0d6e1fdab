"""How a record looks where it is kept, if that is not what a request sees: sealed, hashed or
erased.

A sealed response keeps its status; its headers and its body are bytes that only a key opens. One
that nothing opens is read as done and not stored: its work does not run again.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from .failures import is_failure
from .hashing import framed, octets
from .records import CANCELLATIONS, MISSING, Outcome, OutcomeKind, kind_of

#: The one header of a sealed response; its value holds the others. No header has a colon in its
#: name.
SEALED: Final = ":sealed"
#: What an erased record has in place of its scope and of its key.
ERASED: Final = "#erased"
#: How a hashed scope or key begins. One that is hashed already stays as it is.
HASHED: Final = "#hmac:"
#: What an erased record has in place of a response's headers.
_ERASURE = ((":erased", "true"),)


def hashed_scope(secret: str | bytes, scope: str) -> str:
    """Return what is stored in place of a scope: the same for each of its keys, so that they can be
    found together.
    """
    return scope if scope.startswith((ERASED, HASHED)) else _hashed(secret, b"scope", scope)


def hashed_key(secret: str | bytes, scope: str, key: str) -> str:
    """Return what is stored in place of a key. Equal keys of two owners have different hashes."""
    return key if scope.startswith((ERASED, HASHED)) else _hashed(secret, b"key", scope, key)


def _hashed(secret: str | bytes, kind: bytes, *texts: str) -> str:
    message = framed((b"at rest", kind, *(text.encode() for text in texts)))
    return HASHED + hmac.new(octets(secret), message, hashlib.sha256).hexdigest()


def erasure(outcome: Outcome | None) -> Outcome:
    """Return what stays of a response after its data was erased: its status, or 410 if there was
    none.
    """
    if outcome in CANCELLATIONS:
        return outcome
    return Outcome(
        status=410 if outcome is None else outcome.status, headers=_ERASURE, body=MISSING
    )


def is_sealed(outcome: Outcome | None) -> bool:
    """Is it a response that has not been opened?"""
    return outcome is not None and len(outcome.headers) == 1 and outcome.headers[0][0] == SEALED


def says_nothing(outcome: Outcome) -> bool:
    """Is it one of our own marks, and not a response?

    Those are not sealed: they say the same of every key.
    """
    if outcome in CANCELLATIONS or outcome.headers == _ERASURE or is_failure(outcome):
        return True
    return kind_of(outcome) is OutcomeKind.HELD and outcome.body is MISSING
