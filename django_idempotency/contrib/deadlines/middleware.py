"""Requests that know when their client stops waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timezone
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ...engine.deadlines import deadline
from ...errors import DeadlinePassed, Problem
from ...http.problems import aproblem_response, problem_response
from .headers import left


class DeadlineMiddleware:
    """Begins nothing for a client that waits no longer. Put it first in MIDDLEWARE, or behind what measures.

    It reads `X-Request-Deadline`, `Request-Timeout` and `grpc-timeout`, of which the earliest counts. A request that
    arrives too late gets 504 `deadline-passed`, whether its key was ever seen or not. Inside one that is in time no guarded
    view or function begins, waits or is sent out beyond its deadline. What has begun runs on, under a lease that is renewed.
    """

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Return the response, or the problem of a request that is late."""
        if self.is_async:
            return self._acall(request)
        try:
            within = _deadline_of(request)
        except Problem as problem:
            return problem_response(problem, request)
        with within:
            response: HttpResponseBase = self.get_response(request)
        return response

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        """See __call__()."""
        try:
            within = _deadline_of(request)
        except Problem as problem:
            return await aproblem_response(problem, request)
        with within:
            response: HttpResponseBase = await self.get_response(request)
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """Respond for a view without a guard that has called a guarded function too late."""
        return problem_response(exception, request) if isinstance(exception, DeadlinePassed) else None


def _deadline_of(request: HttpRequest) -> AbstractContextManager[None]:
    """Return the context in which a request is handled. Raises `DeadlinePassed` and `DeadlineMalformed`."""
    seconds = left(request.headers, datetime.now(timezone.utc))
    if seconds == 0:
        raise DeadlinePassed
    return nullcontext() if seconds is None else deadline(seconds, stops_host=False)
