"""One request to a guarded operation of ninja: whose a key is there, and how the API responds to a
problem.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import Model
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ... import Policy
from ...api import Resolved
from ...errors import IdempotencyError, Problem
from ...http.problems import headers, note_problem
from ...scopes import principal
from .. import operations

if TYPE_CHECKING:
    from ninja import NinjaAPI


class OperationCall(operations.OperationCall):
    """One request to a guarded operation."""

    by = "ninja"

    def __init__(self, request: HttpRequest, api: NinjaAPI, policy: Policy) -> None:
        super().__init__(request, policy)
        self._api = api

    def owner_of(self, user: Any, terms: Resolved) -> Any:
        """See caller_of()."""
        return caller_of(self.request, user, terms)

    def handled(self, problem: Problem) -> HttpResponseBase | None:
        """Return the response of the API's own handler, if it has one for a problem."""
        handlers = handled_exceptions(self._api)
        if not any(
            issubclass(cls, IdempotencyError) and cls in handlers for cls in type(problem).__mro__
        ):
            return None
        note_problem(self.request, problem)
        response: HttpResponseBase = self._api.on_exception(self.request, problem)
        for name, value in headers(problem, self.request).items():
            response.setdefault(name, value)
        return response


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
    """Return the owner of a key: `request.auth`, or else `request.user`; `None`: the policy's scope
    decides.

    `request.auth` is what an authentication returned. A user or another row identifies the owner.
    Text does not (a token is a secret, and rotates), nor does a dict: there the policy's `scope`
    takes precedence over a user from a session.
    """
    auth = getattr(request, "auth", None)
    if principal(auth) is not None:
        return auth
    if isinstance(auth, Model) and auth.pk is not None and not hasattr(auth, "is_authenticated"):
        return _Instance(auth)
    unnamed = auth is not None and not isinstance(auth, bool)
    return None if unnamed and policy.scope is not None else user


def handled_exceptions(api: Any) -> Any:
    """Return the exception classes that an API has handlers for.

    `api.on_exception()` finds one for every exception, ninja's own, so it cannot say whether the
    project has one for ours.
    """
    return getattr(api, "_exception_handlers", {})
