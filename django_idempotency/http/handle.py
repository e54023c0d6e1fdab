"""`request.idempotency`: in a guarded view, without a key, and while idempotency is off. Views work with each."""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import lru_cache
from typing import Any
from uuid import uuid4

from django.http import HttpRequest

from ..core.conclusions import WorkResult
from ..core.policy import Policy
from ..core.scope_names import qualified
from ..errors import ConfigurationError, KeyAhead, KeyExpired, KeyMalformed
from ..extensions import extended
from ..realms import realm_of
from ..runtime import switch
from ..runtime.handle import OperationHandle, SwitchedOff
from .facts import facts_of
from .status import HeaderStatus, note
from .terms import resolve_policy

#: The scope of derived keys while idempotency is off: the client is not identified, and a guarded run derives other
#: keys.
_SCOPE = "unguarded"


class RequestIdempotency(OperationHandle):
    """`request.idempotency` in a guarded view."""

    _ending: WorkResult | None = None

    def keep(self) -> None:
        """Store this response, whatever its status. The writes of a 5xx are still rolled back."""
        self._ending = WorkResult.KEPT

    def drop(self) -> None:
        """Do not store this response: the key is free again, even for a different body."""
        self._ending = WorkResult.DROPPED


def switch_off(request: HttpRequest, policy: Policy) -> None:
    """Give the request a `request.idempotency` that stores nothing, and warn once per process."""
    switch.warn_once()
    if facts_of(request).carries_key(policy):
        note(request, HeaderStatus.UNGUARDED)
    if not getattr(request, "idempotency", None):  # another entry point has set it
        request.idempotency = extended(UnguardedIdempotency)(request, policy)  # type: ignore[attr-defined]


class WithoutKey(SwitchedOff, RequestIdempotency):
    """`request.idempotency` of a request that no key guards: false. Nothing is stored."""

    _scope = _key = ""
    seconds = None
    is_held = False

    def __init__(self) -> None:
        pass

    def __setattr__(self, name: str, value: object) -> None:
        """Forget what a view sets: all requests without a key share this."""

    def __bool__(self) -> bool:
        return False

    def derive(self, label: str) -> str:
        """Raise `ConfigurationError`: a retry without a key is another request, so no key could stay the same."""
        raise ConfigurationError(
            f"derive({label!r}) in a request without an idempotency key, or with one that belongs to nobody: there is "
            "nothing to derive from. Type required=True in the policy, or ask `if request.idempotency:` first."
        )


@lru_cache(maxsize=1)
def _of_class(kind: Any) -> WithoutKey:
    return kind()  # type: ignore[no-any-return]


def without_key() -> WithoutKey:
    """Return what each entry point sets on a request that it does not guard, or not yet."""
    kind: Any = extended(WithoutKey)
    return _of_class(kind)


def _key_or_new(request: HttpRequest, policy: Policy) -> str:
    """Return the client's key, or a new one if that is missing or malformed: views may rely on its form."""
    with suppress(KeyMalformed, KeyAhead, KeyExpired):
        if (key := facts_of(request).read_key(policy)) is not None:
            return key
    return uuid4().hex


class UnguardedIdempotency(SwitchedOff, RequestIdempotency):
    """`request.idempotency` while idempotency is off."""

    def __init__(self, request: HttpRequest, policy: Policy) -> None:
        super().__init__(_SCOPE, _key_or_new(request, policy))
        self._request = weakref.ref(request)  # the request refers to us
        self._declared = policy

    def derive(self, label: str) -> str:
        """Return 64 hex digits, the same for this label and this key in this realm."""
        if (request := self._request()) is not None:
            self._scope = qualified(_SCOPE, realm=realm_of(resolve_policy(self._declared), request))
        return super().derive(label)
