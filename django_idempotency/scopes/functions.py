"""Scope functions: the principal of a request without an authenticated user. For `SCOPE` and `Policy(scope=…)`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from django.http import HttpRequest

Scope = Callable[[Any], str | None]


class Public:
    """A scope function whose names are not secret. See public()."""

    __slots__ = ("_function",)

    def __init__(self, function: Scope) -> None:
        given: Any = function
        if not callable(given) or iscoroutinefunction(given):
            raise TypeError(f"scopes.public() takes a sync function of the request, not {given!r}.")
        self._function = function

    def __call__(self, request: Any) -> str | None:
        return self._function(request)

    def __repr__(self) -> str:
        return f"scopes.public({self._function!r})"


def public(function: Scope) -> Public:
    """Store the names that a scope function returns as they are, instead of their hashes.

    Tables, the admin and logs then show them: fine for a partner's slug, not for a session key or an e-mail address.
    """
    return Public(function)


@public  # its hash is
def session(request: HttpRequest) -> str | None:
    """Name a guest by the hash of the session key. A request without a session has no principal.

    Creating a session here would be of no use: a client that does not get the first response does not get its cookie,
    and retries as another guest. Create it when the form is shown: `request.session.create()`. Raises
    `ConfigurationError` without sessions, and for those in signed cookies, whose key changes with every change of the
    session.
    """
    store = getattr(request, "session", None)
    if store is None:
        raise ConfigurationError(
            'scopes.session needs sessions: put "django.contrib.sessions.middleware.SessionMiddleware" in MIDDLEWARE, '
            "above what guards the view."
        )
    if type(store).__module__ == "django.contrib.sessions.backends.signed_cookies":
        raise ConfigurationError(
            "scopes.session needs sessions on the server, since the key of one in a signed cookie changes with it: "
            'type SESSION_ENGINE = "django.contrib.sessions.backends.db", or write a scope function.'
        )
    store.keys()  # loads it, which drops the key of a session that has ended
    key = store.session_key
    return f"session:{hashlib.sha256(key.encode()).hexdigest()}" if key else None
