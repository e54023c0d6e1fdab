"""`POST` for a key, behind REST framework's authentication, permissions and throttles."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from ..rest import OwnView
from . import issuing


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
        issued = issuing.issue_to(http, request.user, self.policy, request)
        return Response(issued.document, status=201, headers={"Cache-Control": "no-store"})
