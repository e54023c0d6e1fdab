"""What the optional apps' own views have in common."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache

from .. import Policy, idempotency_exempt
from ..api.requests import problem_response
from ..errors import Problem


@idempotency_exempt
@method_decorator(never_cache, name="dispatch")
class OwnView(View):
    """The middleware neither guards it nor requires a key. It responds to one of our errors with a
    problem document.
    """

    policy = Policy()

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Respond with a problem document to one of our errors."""
        try:
            return super().dispatch(request, *args, **kwargs)
        except Problem as problem:
            return problem_response(problem, request)
