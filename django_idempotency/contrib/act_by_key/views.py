"""`GET` of a key: a view for Django's own authentication. REST framework's is in `rest`."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse

from ..views import OwnView
from . import looking_up as by_key


class IdempotencyKeyView(OwnView):
    """Lets a client ask about its own operation. Who may is decided around it.

    `policy` names the store, the scope and the lifetime, as of the views whose keys these are.
    """

    http_method_names = ["get", "options"]  # noqa: RUF012 - Django's own shape

    def get(self, request: HttpRequest, key: str) -> JsonResponse:
        """Return the state of the operation."""
        return JsonResponse(by_key.look_up(request, request.user, self.policy, key))
