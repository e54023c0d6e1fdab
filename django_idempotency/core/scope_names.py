"""The text that names the owner of a key: `realm:acme/user:shop.customer:7`. No two owners share one.

A scope is the kind of the owner, a colon and a name. Qualifiers may precede it: a realm (a tenant), a database. Each
consists of a kind, a colon, a name without a slash, and a slash. So a scope can be read from left to right in only one
way: a name cannot be mistaken for a qualifier, nor one tenant's scope for another's. A name that cannot be written as
is, is written as its hash: `realm#sha256:…/`, `scope#sha256:…`. No name can pass for the hash of another, since a colon
follows its kind.
"""

from __future__ import annotations

import hashlib
import re

#: The length of its column.
LONGEST = 255
#: A qualifier's name that is written as is: visible ASCII without a slash, no longer than its hash.
_PLAIN = re.compile(r"[!-.0-~]{1,64}")
#: Qualifies the scope of a key that was only observed: no guard ever asks for it.
OBSERVED = "mode:observe/"
#: One qualifier at the beginning of a scope, as a person types it.
_TYPED = re.compile(r"(mode|realm|database)(#sha256)?:([^/]+)/")


def hashed(scope: str) -> str:
    """Return an unqualified scope with its name hashed, for one that is secret, too long or not printable ASCII."""
    return f"{scope.partition(':')[0]}#sha256:{_digest(scope)}"


def qualified(scope: str, *, realm: str | None = None, database: str | None = None) -> str:
    """Return a scope as it is stored. It fits its column on every database, with any two qualifiers."""
    if realm is None and database is None and len(scope) <= LONGEST and scope.isascii() and scope.isprintable():
        return scope
    front = _qualifier("realm", realm) + _qualifier("database", database)
    return front + _fitting(scope, len(front))


def observed(scope: str) -> str:
    """Return the scope under which the keys of a qualified one are observed."""
    return OBSERVED + _fitting(scope, len(OBSERVED))


def spellings(typed: str, *, realm: str | None = None) -> tuple[str, ...]:
    """Return the stored scopes that a typed one may mean, since people know names, not hashes; the likeliest first."""
    front = _qualifier("realm", realm)
    while qualifier := _TYPED.match(typed):
        kind, is_hash, name = qualifier.groups()
        front += qualifier[0] if is_hash else _qualifier(kind, name)
        typed = typed[qualifier.end() :]
    as_typed = front + _fitting(typed, len(front))
    return (as_typed, front + hashed(typed)) if as_typed.startswith(f"{front}scope:") else (as_typed,)


def user_of(scope: str) -> tuple[str, str] | None:
    """Return the model and the primary key of the user of the default database that a scope names; `None`: it names none.

    Read from left to right: what a client has made up, as in `scope:x/user:auth.user:1`, never reads as a user.
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
