"""A request that would be guarded, were idempotency not switched off: its view must not know the difference."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from django.http import HttpRequest

from .. import conf, switch
from ..errors import KeyMalformed
from ..handles import SwitchedOff
from .exchange import RequestIdempotency
from .keys import read_key

#: Whose the derived keys are. Nobody was asked who sends this request, and a guarded run derives other keys.
_SCOPE = "unguarded"


def leave_unguarded(request: HttpRequest) -> None:
    """Give the request a `request.idempotency` that remembers nothing, and warn once a process."""
    switch.warn_once()
    if not hasattr(request, "idempotency"):  # another door was here before
        request.idempotency = UnguardedIdempotency(_SCOPE, _key_of(request))  # type: ignore[attr-defined]


def _key_of(request: HttpRequest) -> str:
    """Return the client's key, or a new one in place of none or a malformed one: views may count on its form."""
    with suppress(KeyMalformed):
        if (key := read_key(request, conf.get("HEADER"))) is not None:
            return key
    return uuid4().hex


class UnguardedIdempotency(SwitchedOff, RequestIdempotency):
    """`request.idempotency` while idempotency is off."""
