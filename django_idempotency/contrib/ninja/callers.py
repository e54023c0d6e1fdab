"""The owner of a key in ninja: the principal that the operation's authentication accepted."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

from django.db.models import Model
from django.http import HttpRequest

from ...core.policy import Policy
from ...http.keys import principal


class _Instance:
    """Adapts an authenticating row, such as an API key, to a user."""

    is_authenticated = True

    def __init__(self, row: Model) -> None:
        self._row = row

    @property
    def pk(self) -> Any:
        """The row's primary key; hashed if it is text, since that of a token may be the token."""
        pk = self._row.pk
        return pk if isinstance(pk, (int, UUID)) else hashlib.sha256(str(pk).encode()).hexdigest()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._row, name)


def caller_of(request: HttpRequest, user: Any, policy: Policy) -> Any:
    """Return the owner of a key: `request.auth`, or else `request.user`; `None`: the policy's scope decides.

    `request.auth` is what an authentication returned. A user or another row identifies the owner. Text does not (a
    token is a secret, and rotates), nor does a dict: there the policy's `scope` takes precedence over a user from a
    session.
    """
    auth = getattr(request, "auth", None)
    if principal(auth) is not None:
        return auth
    if isinstance(auth, Model) and auth.pk is not None and not hasattr(auth, "is_authenticated"):
        return _Instance(auth)
    unnamed = auth is not None and not isinstance(auth, bool)
    return None if unnamed and policy.scope is not None else user
