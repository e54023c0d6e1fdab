"""Our errors as exceptions of DRF.

A project's own exception handler wins over the problem document.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from rest_framework.exceptions import APIException
from rest_framework.views import exception_handler

from ..errors import Problem
from ..http.exchange import spoken_to


class IdempotencyException(APIException):
    """A problem as an exception of DRF."""

    def __init__(self, problem: Problem, request: HttpRequest) -> None:
        self.problem = problem
        self.status_code = spoken_to(request).profile.status_of(problem)
        super().__init__(problem.detail, problem.code)


def has_own_handler(view: Any) -> bool:
    """Has the project set EXCEPTION_HANDLER? Then it makes the responses to problems."""
    return view.get_exception_handler() is not exception_handler
