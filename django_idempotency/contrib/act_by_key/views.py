"""`GET` of a key: a view for Django's own authentication. REST framework's is in `rest`."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache

from ...core.policy import Policy
from ...errors import Problem
from ...http.markers import Mark
from ...http.problems import problem_response
from . import looking_up as by_key


@method_decorator(never_cache, name="dispatch")
class IdempotencyKeyView(View):
    """Lets a client ask about its own operation. Who may is decided around it.

    `policy` names the store, the scope and the lifetime, as of the views whose keys these are.
    """

    http_method_names = ["get", "options"]  # noqa: RUF012 - Django's own shape
    policy = Policy()
    #: The middleware does not guard it, nor require a key.
    idempotency_mark = Mark(exempt=True)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Respond with a problem document to one of our errors."""
        try:
            return super().dispatch(request, *args, **kwargs)
        except Problem as problem:
            return problem_response(problem, request)

    def get(self, request: HttpRequest, key: str) -> JsonResponse:
        """Return the state of the operation."""
        return JsonResponse(by_key.look_up(request, request.user, self.policy, key))
