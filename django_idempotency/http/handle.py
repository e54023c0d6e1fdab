"""`request.idempotency`: in a guarded view, without a key, and while idempotency is off. Views work with each."""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import lru_cache
from typing import Any
from uuid import uuid4

from django.http import HttpRequest

from ..core.conclusions import WorkResult
from ..core.scope_names import qualified
from ..errors import ConfigurationError, KeyAhead, KeyExpired, KeyMalformed
from ..realms import realm_of
from ..runtime.derivation import Unstored
from ..runtime.handle import OperationHandle
from ..runtime.wings import extended

#: The scope of derived keys while idempotency is off: the client is not identified, and a guarded run derives other
#: keys.
_SCOPE = "unguarded"


class RequestIdempotency(OperationHandle):
    """`request.idempotency` in a guarded view."""

    #: What is noted of the request: `exchange.Exchange`.
    _exchange: Any = None
    _ending: WorkResult | None = None

    def keep(self) -> None:
        """Store this response, whatever its status. The writes of a 5xx are still rolled back."""
        self._ending = WorkResult.KEPT

    def drop(self) -> None:
        """Do not store this response: the key is free again, even for a different body."""
        self._ending = WorkResult.DROPPED


class _NoKey(Unstored):
    """What a request runs under that no key guards."""

    def derived(self, label: str) -> str:
        """Raise `ConfigurationError`: a retry without a key is another request, so no key could stay the same."""
        raise ConfigurationError(
            f"derive({label!r}) in a request without an idempotency key, or with one that belongs to nobody: there is "
            "nothing to derive from. Type required=True in the policy, or ask `if request.idempotency:` first."
        )


NO_KEY = _NoKey("", "")


class WithoutKey(RequestIdempotency):
    """`request.idempotency` of a request that no key guards: false. Nothing is stored."""

    _operation, seconds, is_held = NO_KEY, None, False

    def __init__(self, exchange: Any = None) -> None:
        object.__setattr__(self, "_exchange", exchange)

    def __setattr__(self, name: str, value: object) -> None:
        """Forget what a view sets: all requests of which nothing is noted share one."""

    def __bool__(self) -> bool:
        return False


@lru_cache(maxsize=1)
def _of_class(kind: Any) -> WithoutKey:
    return kind()  # type: ignore[no-any-return]


def without_key() -> WithoutKey:
    """Return what each entry point sets on a request that it does not guard, or not yet."""
    kind: Any = extended(WithoutKey)
    return _of_class(kind)


class SwitchedOff(Unstored):
    """What a request runs under while idempotency is off."""

    def __init__(self, request: HttpRequest, plan: Any) -> None:
        super().__init__(_SCOPE, _key_or_new(request, plan))
        self._request = weakref.ref(request)  # the request refers to us
        self._plan = plan

    @property
    def scope(self) -> str:
        """The scope of this request's realm."""
        request = self._request()
        return _SCOPE if request is None else qualified(_SCOPE, realm=realm_of(self._plan.terms, request))


def _key_or_new(request: HttpRequest, plan: Any) -> str:
    """Return the client's key, or a new one if that is missing or malformed: views may rely on its form."""
    with suppress(KeyMalformed, KeyAhead, KeyExpired):
        if (key := plan.read_key(request.META)) is not None:
            return str(key)
    return uuid4().hex
