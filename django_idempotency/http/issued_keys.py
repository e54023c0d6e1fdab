"""Keys that the server issues, and knows again: `Policy(key_format="issued")`.

    identifier . time . binding : signature

The identifier is random, the time is that of the issue. The binding is a signature of its own over
the identifier, the scope and, for a key that only one address takes, the method and the path: so a
key shows neither, and nobody can find out whose it is by trying. Nothing is stored when a key is
issued. It can be used for one operation because it is a key.

All of it is Django's signing, so keys that were signed before SECRET_KEY changed are known by
SECRET_KEY_FALLBACKS.
"""

from __future__ import annotations

import json
import secrets
from datetime import datetime

from django.core.signing import BadSignature, Signer
from django.http import HttpRequest

from ..core.key_formats import issued_at
from ..errors import KeyForeign

_KEY = "django_idempotency.issued"
_BINDING = "django_idempotency.issued.binding"
#: Random bytes in a key.
_RANDOM = 16


def issue(scope: str, now: datetime, *, method: str = "", path: str = "") -> str:
    """Return a new key for a qualified scope, and, if a path is given, only for requests with that
    method and path.
    """
    identifier = secrets.token_urlsafe(_RANDOM)
    binding = _binder().sign(_bound(identifier, scope, method, path)).rpartition(":")[2]
    return Signer(salt=_KEY).sign(f"{identifier}.{int(now.timestamp() * 1000):011x}.{binding}")


def is_issued(key: str) -> bool:
    """Has this project signed the key?"""
    return issued_at(key) is not None and _is_signed(Signer(salt=_KEY), key)


def require_bound(key: str, scope: str, request: HttpRequest) -> None:
    """Refuse a key of ours that was issued for another scope, or another address.

    Raises `KeyForeign`.
    """
    identifier, _, binding = key.partition(":")[0].split(".")
    for method, path in (("", ""), (request.method or "", request.path)):
        if _is_signed(_binder(), f"{_bound(identifier, scope, method, path)}:{binding}"):
            return
    raise KeyForeign


def _bound(identifier: str, scope: str, method: str, path: str) -> str:
    return json.dumps([identifier, scope, method, path])


def _binder() -> Signer:
    return Signer(salt=_BINDING)


def _is_signed(signer: Signer, text: str) -> bool:
    try:
        signer.unsign(text)
    except BadSignature:
        return False
    return True
