"""`GET` of a key, behind REST framework's authentication, permissions and throttles."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ...core.policy import Policy
from ...errors import Problem
from ...http.markers import Mark
from ...rest_framework.problems import IdempotencyException, respond_to
from . import looking_up as by_key


class IdempotencyKeyView(APIView):
    """Lets a client ask about its own operation. Who may, its permissions decide.

    `policy` names the store, the scope and the lifetime, as of the views whose keys these are.
    """

    policy = Policy()
    #: The middleware does not guard it, nor require a key.
    idempotency_mark = Mark(exempt=True)

    def get(self, request: Request, key: str) -> Response:
        """Return the state of the operation."""
        found = by_key.look_up(request._request, request.user, self.policy, key)
        return Response(found, headers={"Cache-Control": "no-store"})

    def handle_exception(self, exc: Exception) -> Any:
        """Respond to one of our errors as a guard does."""
        if isinstance(exc, Problem):
            return respond_to(self, IdempotencyException(exc, self.request._request), self.request._request)
        return super().handle_exception(exc)
