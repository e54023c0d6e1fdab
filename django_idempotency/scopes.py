"""Whose a key is: its scope, and the realm (a tenant) that qualifies it.

For the setting `SCOPE` and `Policy(scope=…)`: how a project names that, if it is not the user's.

A scope function names whom a request without an authenticated user belongs to, or one whose client
is not the user.

A scope is the text that names the owner of a key: `realm:acme/user:shop.customer:7`. No two owners
share one. It is the kind of the owner, a colon and a name. Qualifiers may precede it: a realm (a
tenant), a database. Each consists of a kind, a colon, a name without a slash, and a slash. So a
scope can be read from left to right in only one way: a name cannot be mistaken for a qualifier, nor
one tenant's scope for another's. A name that cannot be written as is, is written as its hash:
`realm#sha256:…/`, `scope#sha256:…`. No name can pass for the hash of another, since a colon follows
its kind.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.models import Model

from .core.dialects import takes
from .core.policy import MIN_SHARED_KEY, Policy
from .errors import ConfigurationError, KeyTooShort

if TYPE_CHECKING:
    from django.http import HttpRequest

#: The length of its column.
LONGEST = 255
#: A qualifier's name that is written as is: visible ASCII without a slash, no longer than its hash.
_PLAIN = re.compile(r"[!-.0-~]{1,64}")
#: Qualifies the scope of a key that was only observed: no guard ever asks for it.
OBSERVED = "mode:observe/"
#: One qualifier at the beginning of a scope, as a person types it.
_TYPED = re.compile(r"(mode|realm|database)(#sha256)?:([^/]+)/")
ANONYMOUS = "anonymous"

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
        if iscoroutinefunction(given) or not takes(given, 1):
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

    Tables, the admin and logs then show them: fine for a partner's slug, not for a session key or
    an e-mail address.
    """
    return replace(_marked(function), is_public=True)


def before_user(function: Scope) -> Marked:
    """Ask a scope function first, also where there is an authenticated user; if it returns `None`,
    the key is the user's.

    For views whose client is not the user, such as one that works for the project of an API key, no
    matter who is logged in: two API keys that are sent with one session cookie would share the
    user's keys. Not for a function that names a session: a user has several.
    """
    return replace(_marked(function), precedes_user=True)


@public  # its hash is
def session(request: HttpRequest) -> str | None:
    """Name a guest by the hash of the session key. A request without a session has no principal.

    Creating a session here would be of no use: a client that does not get the first response does
    not get its cookie, and retries as another guest. Create it when the form is shown:
    `request.session.create()`. Raises `ConfigurationError` without sessions, and for those in
    signed cookies, whose key changes with every change of the session.
    """
    store = getattr(request, "session", None)
    if store is None:
        raise ConfigurationError(
            "scopes.session needs sessions: put "
            '"django.contrib.sessions.middleware.SessionMiddleware" in MIDDLEWARE, '
            "above what guards the view."
        )
    if type(store).__module__ == "django.contrib.sessions.backends.signed_cookies":
        raise ConfigurationError(
            "scopes.session needs sessions on the server, since the key of one in a signed "
            "cookie changes with it: "
            'type SESSION_ENGINE = "django.contrib.sessions.backends.db", or write a scope '
            "function."
        )
    store.keys()  # loads it, which drops the key of a session that has ended
    key = store.session_key
    return f"session:{_digest(key)}" if key else None


@public  # a token that is a primary key is hashed
def auth(request: HttpRequest) -> str | None:
    """Name a client by the row of its token or device: `request.auth` of REST framework,
    `auth:<app.model>:<pk>`.

    A primary key other than an integer is hashed, since it may be the token. A proxy is the same
    client as its concrete model, and a database other than the default is named. For
    authentications that return `AnonymousUser` and that row. Where it is anything else, such as the
    payload of a JWT or an unsaved row, the request has no principal.
    """
    row = getattr(request, "auth", None)
    if not isinstance(row, Model) or row._state.adding:  # noqa: SLF001 - documented, like _meta
        return None
    model: Any = row._meta.concrete_model
    pk = getattr(row, model._meta.pk.attname)  # `pk` of REST framework's TokenProxy is its user
    if pk is None or str(pk) == "":
        return None
    name = pk if isinstance(pk, int) else _digest(str(pk))
    return qualified(f"auth:{model._meta.label_lower}:{name}", database=database_of(model, row))


# --------------------------------------------------------------------------- the scope of a request


def principal(user: Any) -> tuple[str, str | None] | None:
    """Name an authenticated user, as `user:<model>:<pk>` (of a proxy, its concrete model); `None`
    for any other.

    `None`, too, for one without a primary key, or with an empty one: all such users would share
    their keys.

    A database other than the default is named, too: user 1 of another database is another person.
    """
    if user is None or not getattr(user, "is_authenticated", False):
        return None
    pk = getattr(user, "pk", None)
    if pk is None or str(pk) == "":  # it would name each user that has none
        return None
    meta = getattr(user, "_meta", None)
    model = getattr(meta, "concrete_model", None)  # a proxy is the same person
    if model is None:
        kind = (
            meta.label_lower
            if meta is not None
            else f"{type(user).__module__}.{type(user).__qualname__}"
        )
        return f"user:{kind}:{pk}", None
    return f"user:{model._meta.label_lower}:{pk}", database_of(model, user)


def scope_of(request: HttpRequest, user: Any, policy: Policy, key: str) -> str | None:
    """Return the qualified scope of a key, or `None` when the request has no principal.

    It is the user's, or else what `policy.scope` names; the other way round for a
    `scopes.before_user`. Raises `KeyTooShort` for a guessable key that all clients share,
    `ConfigurationError` when `policy.scope` or `policy.realm` returns an invalid name.
    """
    first = isinstance(policy.scope, Marked) and policy.scope.precedes_user
    found = _by_name(request, policy) if first else None
    if found is None and (owner := principal(user)) is not None:
        scope, database = owner
        realm = None if policy.realm is None and SAID.get() is None else realm_of(policy, request)
        return qualified(scope, realm=realm, database=database)
    if found is None and policy.scope is not None and not first:
        found = _by_name(request, policy)
    if found is None and policy.anonymous == "shared":
        if len(key) < MIN_SHARED_KEY:
            raise KeyTooShort
        return qualified(ANONYMOUS, realm=realm_of(policy, request))
    return found


def _by_name(request: HttpRequest, policy: Policy) -> str | None:
    named: Any = policy.scope(request) if policy.scope is not None else None
    if named is not None and not isinstance(named, str):
        raise ConfigurationError(
            f"Policy.scope must return text or None, not {type(named).__name__}."
        )
    if not named:
        return None
    scope = f"scope:{named}"
    is_public = isinstance(policy.scope, Marked) and policy.scope.is_public
    return qualified(scope if is_public else hashed(scope), realm=realm_of(policy, request))


def database_of(model: type[Model], row: Model) -> str | None:
    """Return where a row would be saved, whichever replica it was read from; `None` for the default
    database.
    """
    alias = router.db_for_write(model, instance=row)
    # No router has led away from a replica. An alias that was added at run time may have no such
    # entry.
    primary = connections.settings.get(alias, {}).get("TEST", {}).get("MIRROR") or alias
    return None if primary == DEFAULT_DB_ALIAS else primary


# -------------------------------------------------------------------------------- how it is written


def hashed(scope: str) -> str:
    """Return an unqualified scope with its name hashed, for one that is secret, too long or not
    printable ASCII.
    """
    return f"{scope.partition(':')[0]}#sha256:{_digest(scope)}"


def qualified(scope: str, *, realm: str | None = None, database: str | None = None) -> str:
    """Return a scope as it is stored.

    It fits its column on every database, with any two qualifiers.
    """
    if (
        realm is None
        and database is None
        and len(scope) <= LONGEST
        and scope.isascii()
        and scope.isprintable()
    ):
        return scope
    front = _qualifier("realm", realm) + _qualifier("database", database)
    return front + _fitting(scope, len(front))


def observed(scope: str) -> str:
    """Return the scope under which the keys of a qualified one are observed."""
    return OBSERVED + _fitting(scope, len(OBSERVED))


def spellings(typed: str, *, realm: str | None = None) -> tuple[str, ...]:
    """Return the stored scopes that a typed one may mean, since people know names, not hashes; the
    likeliest first.
    """
    front = _qualifier("realm", realm)
    while qualifier := _TYPED.match(typed):
        kind, is_hash, name = qualifier.groups()
        front += qualifier[0] if is_hash else _qualifier(kind, name)
        typed = typed[qualifier.end() :]
    as_typed = front + _fitting(typed, len(front))
    return (
        (as_typed, front + hashed(typed)) if as_typed.startswith(f"{front}scope:") else (as_typed,)
    )


def user_of(scope: str) -> tuple[str, str] | None:
    """Return the model and the primary key of the user of the default database that a scope names;
    `None`: it names none.

    Read from left to right: what a client has made up, as in `scope:x/user:auth.user:1`, never
    reads as a user.
    """
    while qualifier := _TYPED.match(scope):
        if qualifier[1] == "database":
            return None
        scope = scope[qualifier.end() :]
    kind, _, name = scope.partition(":")
    model, colon, key = name.partition(":")
    return (model, key) if kind == "user" and colon else None


def _fitting(scope: str, taken: int) -> str:
    plain = taken + len(scope) <= LONGEST and scope.isascii() and scope.isprintable()
    return scope if plain else hashed(scope)


def _qualifier(kind: str, name: str | None) -> str:
    if name is None:
        return ""
    return f"{kind}:{name}/" if _PLAIN.fullmatch(name) else f"{kind}#sha256:{_digest(name)}/"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ------------------------------------------------------------------------------------------- realms

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
