"""For the setting `SCOPE` and `Policy(scope=…)`: whose a key is, if not the user's.

A scope function names whom a request without an authenticated user belongs to, or one whose client is not the user.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.models import Model

from .core.scope_names import qualified
from .errors import ConfigurationError

if TYPE_CHECKING:
    from django.http import HttpRequest

Scope = Callable[[Any], str | None]


@dataclass(frozen=True, slots=True, repr=False)
class Marked:
    """A scope function, and what the project says of it: see public() and before_user()."""

    function: Scope
    #: Are its names stored as they are, instead of their hashes?
    is_public: bool = False
    #: Is it asked before the user?
    precedes_user: bool = False

    def __post_init__(self) -> None:
        given: Any = self.function
        if not callable(given) or iscoroutinefunction(given):
            raise TypeError(f"A scope function is a sync function of the request, not {given!r}.")

    def __call__(self, request: Any) -> str | None:
        return self.function(request)

    def __repr__(self) -> str:
        given: Any = self.function
        name = getattr(given, "__qualname__", None)
        shown = repr(given) if name is None else f"{given.__module__}.{name}"
        for mark, is_set in (("public", self.is_public), ("before_user", self.precedes_user)):
            shown = f"scopes.{mark}({shown})" if is_set else shown
        return shown


def _marked(function: Scope) -> Marked:
    return function if isinstance(function, Marked) else Marked(function)


def public(function: Scope) -> Marked:
    """Store the names that a scope function returns as they are, instead of their hashes.

    Tables, the admin and logs then show them: fine for a partner's slug, not for a session key or an e-mail address.
    """
    return replace(_marked(function), is_public=True)


def before_user(function: Scope) -> Marked:
    """Ask a scope function first, also where there is an authenticated user; if it returns `None`, the key is the user's.

    For views whose client is not the user, such as one that works for the project of an API key, no matter who is logged
    in: two API keys that are sent with one session cookie would share the user's keys. Not for a function that
    names a session: a user has several.
    """
    return replace(_marked(function), precedes_user=True)


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


def database_of(model: type[Model], row: Model) -> str | None:
    """Return where a row would be saved, whichever replica it was read from; `None` for the default database."""
    alias = router.db_for_write(model, instance=row)
    # No router has led away from a replica. An alias that was added at run time may have no such entry.
    primary = connections.settings.get(alias, {}).get("TEST", {}).get("MIRROR") or alias
    return None if primary == DEFAULT_DB_ALIAS else primary


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
