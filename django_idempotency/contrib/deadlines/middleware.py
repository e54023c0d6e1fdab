"""Requests that know when their client stops waiting."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime, timezone
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from ...api import CALLER_ENDS
from ...api.requests import aproblem_response, problem_response
from ...errors import Problem
from .headers import RequestLate, left


class DeadlineMiddleware(MiddlewareMixin):
    """Begins nothing for a client that waits no longer. Put it first in MIDDLEWARE, or behind what
    measures.

    It reads `X-Request-Deadline`, `Request-Timeout` and `grpc-timeout`, of which the earliest
    counts. A request that arrives too late gets 504 `deadline-passed`, whether its key was ever
    seen or not. One that is in time runs to its end: no deadline of a client ends a lease, or
    breaks work off between two of its effects.
    """

    get_response: Any

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Return the response, or the problem of a request that is late."""
        if self.async_mode:
            return self._acall(request)
        try:
            ends = _ends(request)
        except Problem as problem:
            return problem_response(problem, request)
        CALLER_ENDS.set(ends)
        try:
            response: HttpResponseBase = self.get_response(request)
        finally:
            CALLER_ENDS.set(None)
        return response

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        """See __call__()."""
        try:
            ends = _ends(request)
        except Problem as problem:
            return await aproblem_response(problem, request)
        CALLER_ENDS.set(ends)
        try:
            response: HttpResponseBase = await self.get_response(request)
        finally:
            CALLER_ENDS.set(None)
        return response


def _ends(request: HttpRequest) -> float | None:
    """Return when the client stops waiting (Unix seconds); `None`: unknown.

    Raises `RequestLate`, `DeadlineMalformed`.
    """
    now = datetime.now(timezone.utc)
    seconds = left(request.headers, now)
    if seconds == 0:
        raise RequestLate
    return None if seconds is None else now.timestamp() + seconds
