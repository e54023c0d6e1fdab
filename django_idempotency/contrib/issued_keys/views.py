"""`POST` for a key: a view for Django's own authentication. REST framework's is in `rest`."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse

from ..views import OwnView
from . import issuing


class IdempotencyTokenView(OwnView):
    """Issues keys, for `Policy(key_format="issued")`. To whom is decided around it.

    `policy` names the scope and the lifetime of keys that are for any address. One that is for an
    address has those of the view there, and is issued to those whom `policy` knows.
    """

    http_method_names = ["post", "options"]  # noqa: RUF012 - Django's own shape
    #: `manage.py check` looks for a view that has this.
    issues_idempotency_keys = True

    def post(self, request: HttpRequest) -> JsonResponse:
        """Return a new key, and until when it is accepted."""
        user = getattr(request, "user", None)
        issued = issuing.issue_to(request, user, self.policy, request)
        return JsonResponse(issued.document, status=201)
