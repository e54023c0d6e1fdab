"""`GET` of a key, behind REST framework's authentication, permissions and throttles."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from ..rest import OwnView
from . import looking_up as by_key


class IdempotencyKeyView(OwnView):
    """Lets a client ask about its own operation. Who may, its permissions decide.

    `policy` names the store, the scope and the lifetime, as of the views whose keys these are.
    """

    def get(self, request: Request, key: str) -> Response:
        """Return the state of the operation."""
        found = by_key.look_up(request._request, request.user, self.policy, key)
        return Response(found, headers={"Cache-Control": "no-store"})
