"""`POST` for a key, behind REST framework's authentication, permissions and throttles."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ...core.policy import Policy
from ...errors import Problem
from ...http.markers import Mark
from ...rest_framework.problems import IdempotencyException, respond_to
from . import issuing


class IdempotencyTokenView(APIView):
    """Issues keys, for `Policy(key_format="issued")`. To whom, its permissions decide.

    `policy` names the scope and the lifetime of keys that are for any address. One that is for an address has those of the
    view there, and is issued to those whom `policy` knows.
    """

    policy = Policy()
    #: The middleware does not guard it, nor require a key.
    idempotency_mark = Mark(exempt=True)
    #: `manage.py check` looks for a view that has this.
    issues_idempotency_keys = True

    def post(self, request: Request) -> Response:
        """Return a new key, and until when it is accepted."""
        http = request._request
        issued = issuing.issue_to(http, request.user, self.policy, request)
        return Response(issued.document, status=201, headers={"Cache-Control": "no-store"})

    def handle_exception(self, exc: Exception) -> Any:
        """Respond to one of our errors as a guard does."""
        if isinstance(exc, Problem):
            return respond_to(self, IdempotencyException(exc, self.request._request), self.request._request)
        return super().handle_exception(exc)
