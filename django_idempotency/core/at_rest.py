"""How a record looks where it is kept, if that is not what a request sees: sealed, hashed or erased.

A sealed response keeps its status; its headers and its body are bytes that only a key opens. One that nothing opens is
read as done and not stored: its work does not run again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from operator import itemgetter
from typing import Final

from .failures import is_failure
from .hashing import framed, octets
from .records import CANCELLATIONS, MISSING, REASON, TRACE, Outcome, OutcomeKind, kind_of

#: The one header of a sealed response; its value holds the others. No header has a colon in its name.
SEALED: Final = ":sealed"
#: What an erased record has in place of its scope and of its key.
ERASED: Final = "#erased"
#: How a hashed scope or key begins. One that is hashed already stays as it is.
HASHED: Final = "#hmac:"
#: What an erased record has in place of a response's headers.
_ERASURE = ((":erased", "true"),)
#: The names of a response's headers, one after the other (RFC 9110 section 5.6.2), and of what is stored behind them.
_NAMES = re.compile(rf"[!#$%&'*+.^_`|~0-9A-Za-z-]*({REASON})?({TRACE})?")


def hashed_scope(secret: str | bytes, scope: str) -> str:
    """Return what is stored in place of a scope: the same for each of its keys, so that they can be found together."""
    return scope if scope.startswith((ERASED, HASHED)) else _hashed(secret, b"scope", scope)


def hashed_key(secret: str | bytes, scope: str, key: str) -> str:
    """Return what is stored in place of a key. Equal keys of two owners have different hashes."""
    return key if scope.startswith((ERASED, HASHED)) else _hashed(secret, b"key", scope, key)


def _hashed(secret: str | bytes, kind: bytes, *texts: str) -> str:
    message = framed((b"at rest", kind, *(text.encode() for text in texts)))
    return HASHED + hmac.new(octets(secret), message, hashlib.sha256).hexdigest()


def erasure(outcome: Outcome | None) -> Outcome:
    """Return what stays of a response after its data was erased: its status, or 410 if there was none."""
    if outcome in CANCELLATIONS:
        return outcome
    return Outcome(status=410 if outcome is None else outcome.status, headers=_ERASURE, body=MISSING)


def is_sealed(outcome: Outcome | None) -> bool:
    """Is it a response that has not been opened?"""
    return outcome is not None and len(outcome.headers) == 1 and outcome.headers[0][0] == SEALED


def readable(outcome: Outcome) -> Outcome | None:
    """Return what can be read of what is stored: of a response that has not been opened, only its status.

    `None`: it is damaged, or a later version has written it. Its headers are neither all a response's nor a mark of ours.
    """
    names = "".join(map(itemgetter(0), outcome.headers))
    if _NAMES.fullmatch(names):
        return outcome
    if is_sealed(outcome):
        return Outcome(status=outcome.status, body=MISSING)
    return outcome if says_nothing(outcome) else None


def says_nothing(outcome: Outcome) -> bool:
    """Is it one of our own marks, and not a response? Those are not sealed: they say the same of every key."""
    if outcome in CANCELLATIONS or outcome.headers == _ERASURE or is_failure(outcome):
        return True
    return kind_of(outcome) is OutcomeKind.HELD and outcome.body is MISSING
