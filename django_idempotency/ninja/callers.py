"""Whose a key is in ninja: theirs whom the operation's authentication let in."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

from django.db.models import Model
from django.http import HttpRequest

from ..core.policy import Policy
from ..http.keys import principal


class _Instance:
    """A row that authenticates, as an API key does, seen as a user."""

    is_authenticated = True

    def __init__(self, row: Model) -> None:
        self._row = row

    @property
    def pk(self) -> Any:
        """The row's primary key; hashed if it is a text, since that of a token may be the token."""
        pk = self._row.pk
        return pk if isinstance(pk, (int, UUID)) else hashlib.sha256(str(pk).encode()).hexdigest()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._row, name)


def caller_of(request: HttpRequest, user: Any, policy: Policy) -> Any:
    """Return whom a key belongs to: what `request.auth` names, or else `request.user`; `None`: the policy's scope says.

    `request.auth` is what an authentication returned. A user or another row has a name. A text does not (a token is a
    secret, and rotates), nor has a dict: there the policy's `scope` goes before a user who merely has a session.
    """
    auth = getattr(request, "auth", None)
    if principal(auth) is not None:
        return auth
    if isinstance(auth, Model) and auth.pk is not None and not hasattr(auth, "is_authenticated"):
        return _Instance(auth)
    unnamed = auth is not None and not isinstance(auth, bool)
    return None if unnamed and policy.scope is not None else user
