"""The optional apps' own views for REST framework, behind its authentication, permissions and
throttles.
"""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from .. import Policy, idempotency_exempt
from ..errors import Problem
from ..rest_framework.below_api_view import respond_to
from ..rest_framework.problems import IdempotencyException
from .limits.issued_keys import issue_to
from .publishing.by_key import look_up


@idempotency_exempt
class OwnView(APIView):
    """A view of ours: the middleware neither guards it nor requires a key. It responds to our
    errors as a guard does.
    """

    policy = Policy()

    def handle_exception(self, exc: Exception) -> Any:
        """Respond to one of our errors as a guard does."""
        if isinstance(exc, Problem):
            return respond_to(
                self, IdempotencyException(exc, self.request._request), self.request._request
            )
        return super().handle_exception(exc)


class IdempotencyKeyView(OwnView):
    """Lets a client ask about its own operation. Who may, its permissions decide.

    `policy` names the store, the scope and the lifetime, as of the views whose keys these are.
    """

    def get(self, request: Request, key: str) -> Response:
        """Return the state of the operation."""
        found = look_up(request._request, request.user, self.policy, key)
        return Response(found, headers={"Cache-Control": "no-store"})


class IdempotencyTokenView(OwnView):
    """Issues keys, for `Policy(key_format="issued")`. To whom, its permissions decide.

    `policy` names the scope and the lifetime of keys that are for any address. One that is for an
    address has those of the view there, and is issued to those whom `policy` knows.
    """

    #: `manage.py check` looks for a view that has this.
    issues_idempotency_keys = True

    def post(self, request: Request) -> Response:
        """Return a new key, and until when it is accepted."""
        http = request._request
        issued = issue_to(http, request.user, self.policy, request)
        return Response(issued.document, status=201, headers={"Cache-Control": "no-store"})
