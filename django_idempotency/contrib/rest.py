"""What the wings' own views of REST framework have in common, and how they respond to a problem."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from rest_framework.views import APIView

from ..core.policy import Policy
from ..errors import Problem
from ..http.markers import Mark
from ..http.problems import note_problem, problem_response
from ..rest_framework.guarding import headed
from ..rest_framework.problems import IdempotencyException, has_own_handler


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


def respond_to(view: Any, exception: IdempotencyException, request: HttpRequest) -> Any:
    """Return the response to a problem: from the project's exception handler, or a problem
    document.
    """
    if not has_own_handler(view):
        return problem_response(exception.problem, request)
    note_problem(request, exception.problem)
    response = view.get_exception_handler()(exception, view.get_exception_handler_context())
    if response is None:
        raise exception
    response.exception = True
    return headed(response, exception.problem, request)
