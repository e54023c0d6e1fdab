"""`POST` for a key: a view for Django's own authentication. REST framework's is in `rest`."""

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
from . import issuing


@method_decorator(never_cache, name="dispatch")
class IdempotencyTokenView(View):
    """Issues keys, for `Policy(key_format="issued")`. To whom is decided around it.

    `policy` names the scope and the lifetime of keys that are for any address. One that is for an address has those of the
    view there, and is issued to those whom `policy` knows.
    """

    http_method_names = ["post", "options"]  # noqa: RUF012 - Django's own shape
    policy = Policy()
    #: The middleware does not guard it, nor require a key.
    idempotency_mark = Mark(exempt=True)
    #: `manage.py check` looks for a view that has this.
    issues_idempotency_keys = True

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Respond with a problem document to one of our errors."""
        try:
            return super().dispatch(request, *args, **kwargs)
        except Problem as problem:
            return problem_response(problem, request)

    def post(self, request: HttpRequest) -> JsonResponse:
        """Return a new key, and until when it is accepted."""
        user = getattr(request, "user", None)
        issued = issuing.issue_to(request, user, self.policy, request)
        return JsonResponse(issued.document, status=201)
