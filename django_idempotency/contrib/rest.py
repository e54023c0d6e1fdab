"""What the optional apps' own views of REST framework have in common."""

from __future__ import annotations

from typing import Any

from rest_framework.views import APIView

from ..core.policy import Policy
from ..errors import Problem
from ..http.markers import Mark
from ..rest_framework.below_api_view import respond_to
from ..rest_framework.problems import IdempotencyException


class OwnView(APIView):
    """A view of ours: the middleware neither guards it nor requires a key. It responds to our
    errors as a guard does.
    """

    policy = Policy()
    idempotency_mark = Mark(exempt=True)

    def handle_exception(self, exc: Exception) -> Any:
        """Respond to one of our errors as a guard does."""
        if isinstance(exc, Problem):
            return respond_to(
                self, IdempotencyException(exc, self.request._request), self.request._request
            )
        return super().handle_exception(exc)
