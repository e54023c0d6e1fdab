"""The middleware's door: project wide, for views that have none of their own.

It stands after every middleware that has a `process_view`, since what those refuse must not be answered from a record.
`process_view` claims and opens the guard, and the view runs as ever; the answer is settled when it comes back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import get_resolver

from . import conf
from .core.policy import SAFE_METHODS, Policy
from .core.records import Guarantee
from .errors import ConfigurationError, Problem
from .finishing import to_the_end
from .http.exchange import Exchange, key_of, terms_of
from .http.keys import carries_key
from .http.problems import problem_response
from .http.running import opened
from .marks import has_handler, has_own_door, is_exempt
from .transactions import leave_while_held

_POLICY = Policy()
#: On a request: the exchange that the middleware opened, not one of a door further in.
_OUTER = "_idempotency_outer"


class IdempotencyMiddleware:
    """Guards every unsafe request that carries a key and belongs to somebody."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)
            self.process_view = self.aprocess_view  # type: ignore[assignment]

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if not self._concerns(request):
            return self.get_response(request)  # type: ignore[no-any-return]
        return self._acall(request) if self.is_async else self._call(request, self.get_response)

    def _concerns(self, request: HttpRequest) -> bool:
        return request.method not in SAFE_METHODS and carries_key(request)

    # --------------------------------------------------------------------------------------------------- the answer

    def _call(self, request: HttpRequest, get_response: Callable[[HttpRequest], HttpResponseBase]) -> HttpResponseBase:
        try:
            response = get_response(request)
        except BaseException as error:
            if (exchange := self._exchange(request)) is not None:
                exchange.fail(error)
            raise
        if (exchange := self._exchange(request)) is None:
            return response
        try:
            return exchange.settle(response)
        except Problem as problem:
            return problem_response(problem)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        if not self._runs_async(request):
            # One hop: claim, view, settle and COMMIT in one thread call, which a client that leaves cannot cut.
            return await to_the_end(sync_to_async(self._call)(request, async_to_sync(self.get_response)))
        try:
            response: HttpResponseBase = await self.get_response(request)
        except BaseException as error:
            if (exchange := self._exchange(request)) is not None:
                await to_the_end(exchange.afail(error))
            raise
        if (exchange := self._exchange(request)) is None:
            return response
        try:
            return await to_the_end(exchange.asettle(response))
        except Problem as problem:
            return problem_response(problem)

    def _exchange(self, request: HttpRequest) -> Exchange | None:
        return getattr(request, _OUTER, None)

    def _runs_async(self, request: HttpRequest) -> bool:
        """Is the request's view async? Asked before the view is resolved for good, on ASGI and with a key only."""
        try:
            match = get_resolver(getattr(request, "urlconf", None)).resolve(request.path_info)
        except Http404:
            return True  # no view: no thread
        return iscoroutinefunction(match.func)

    # ----------------------------------------------------------------------------------------------------- the view

    def process_view(
        self, request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """Claim and open the guard; answer only what is ours to answer."""
        if self._passes(request, callback):
            return None
        if hasattr(callback, "cls"):  # DRF's: the guard belongs behind its authentication and permissions
            from .rest_framework.lending import is_bare, lent_to_middleware

            if not has_handler(callback, request.method or "") and not is_bare(callback):
                return None  # cache_page(…)(ListView.as_view()), say: nothing to guard, it answers 405
            lent: HttpResponseBase = lent_to_middleware(callback)(request, *args, **kwargs)
            return lent
        try:
            exchange = self._admit(request, getattr(request, "user", None))
            if exchange is None:
                return None
            leave_while_held(callback)
            return self._opened(request, exchange, exchange.open())
        except Problem as problem:
            return problem_response(problem)

    async def aprocess_view(
        self, request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """See process_view()."""
        if self._passes(request, callback):
            return None
        if not iscoroutinefunction(callback):  # in _call()'s own thread
            return await sync_to_async(type(self).process_view)(self, request, callback, args, kwargs)
        try:
            exchange = self._admit(request, await request.auser() if hasattr(request, "auser") else None)
            if exchange is None:
                return None
            if exchange.operation.ticket.guarantee is Guarantee.ATOMIC:
                raise ConfigurationError(
                    f'{callback.__qualname__} is async and cannot be "atomic". Put @idempotent(guarantee="lease") on it, '
                    "or @idempotency_exempt."
                )
            return self._opened(request, exchange, await opened(exchange))
        except Problem as problem:
            return problem_response(problem)

    def process_exception(self, request: HttpRequest, exception: Exception) -> None:
        """Remember that the view raised: its answer will be somebody else's."""
        if (exchange := self._exchange(request)) is not None:
            exchange.raised = exception

    def _passes(self, request: HttpRequest, callback: Any) -> bool:
        """Does the request pass, since it has nothing to guard, or a door nearer to the view?"""
        if not self._concerns(request) and (request.method in SAFE_METHODS or not conf.get("REQUIRED")):
            return True
        return is_exempt(callback) or has_own_door(callback, request.method or "")

    def _admit(self, request: HttpRequest, user: Any) -> Exchange | None:
        if (key := key_of(request, _POLICY)) is None:
            return None
        return Exchange.of(request, terms_of(_POLICY), key=key, user=user, source=request, strict=False)

    def _opened(
        self, request: HttpRequest, exchange: Exchange, answer: HttpResponseBase | None
    ) -> HttpResponseBase | None:
        if answer is None:
            setattr(request, _OUTER, exchange)
        return answer
