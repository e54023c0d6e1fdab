"""For the setting `REALM` and `Policy(realm=…)`: the tenant of a request or a call.

It qualifies every scope, so that keys of two never meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .core.policy import Policy
from .errors import ConfigurationError

if TYPE_CHECKING:
    from django.http import HttpRequest

#: The realm of `with realm(…)`, in a tuple, since `None` is a valid one.
SAID: ContextVar[tuple[str | None] | None] = ContextVar("django_idempotency_realm", default=None)


@contextmanager
def realm(name: str | None) -> Iterator[None]:
    """Set the realm of requests and calls in this block, overriding `REALM` and policies; `None`:
    no realm.

    It holds for this thread or task, and for the tasks that it starts; a new thread does not
    inherit it. Raises `TypeError` or `ValueError` for an invalid name.
    """
    given: Any = name
    if given is not None and not isinstance(given, str):
        raise TypeError(f"realm() takes text, or None, not a {type(given).__name__}.")
    if name == "":
        raise ValueError('realm() takes a name, such as "tenant-a". Without one, type realm(None).')
    token = SAID.set((name,))
    try:
        yield
    finally:
        SAID.reset(token)


def realm_of(policy: Policy, request: HttpRequest | None) -> str | None:
    """Return the realm of a request, or (`None`) of a call.

    Raises `ConfigurationError` for an invalid name.
    """
    said = SAID.get()
    if said is not None:
        return said[0]
    if policy.realm is None:
        return None
    named: Any = policy.realm(request)
    if named is None or (isinstance(named, str) and named):
        return named
    found = "an empty one" if named == "" else type(named).__name__
    raise ConfigurationError(f"Policy.realm must return text or None, not {found}.")
