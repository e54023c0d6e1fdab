"""Our errors as exceptions of DRF.

A project's own exception handler wins over the problem document.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from rest_framework.exceptions import APIException
from rest_framework.views import exception_handler

from ..errors import Problem
from ..http import problems
from ..http.exchange import spoken_to
from ..http.problems import detail


class IdempotencyException(APIException):
    """A problem as an exception of DRF."""

    def __init__(self, problem: Problem, request: HttpRequest) -> None:
        self.problem = problem
        self.status_code = problems.status_of(problem, spoken_to(request).profile)
        super().__init__(detail(problem), problem.code)


def has_own_handler(view: Any) -> bool:
    """Has the project set EXCEPTION_HANDLER? Then it makes the responses to problems."""
    return view.get_exception_handler() is not exception_handler
