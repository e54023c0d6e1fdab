"""Scope functions: the principal of a request without an authenticated user. For `SCOPE` and `Policy(scope=…)`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction
from django.db.models import Model

from ..core.scope_names import qualified
from ..errors import ConfigurationError
from .rows import database_of

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
    return f"session:{_digest(key)}" if key else None


@public  # a token that is a primary key is hashed
def auth(request: HttpRequest) -> str | None:
    """Name a client by the row of its token or device: `request.auth` of REST framework, `auth:<app.model>:<pk>`.

    A primary key other than an integer is hashed, since it may be the token. A proxy is the same client as its concrete
    model, and a database other than the default is named. For authentications that return `AnonymousUser` and that row.
    Where it is anything else, such as the payload of a JWT or an unsaved row, the request has no principal.
    """
    row = getattr(request, "auth", None)
    if not isinstance(row, Model) or row._state.adding:  # noqa: SLF001 - documented, like _meta
        return None
    model: Any = row._meta.concrete_model
    pk = getattr(row, model._meta.pk.attname)  # `pk` of REST framework's TokenProxy is its user
    if pk is None:
        return None
    name = pk if isinstance(pk, int) else _digest(str(pk))
    return qualified(f"auth:{model._meta.label_lower}:{name}", database=database_of(model, row))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
