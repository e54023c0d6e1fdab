"""The middleware: a guard for the whole project, for views without one of their own.

It comes after every middleware that has a `process_view`, since a request that those refuse must not be replayed.
`process_view` claims and opens the guard, the view runs as usual, and the response is settled on its way back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import get_resolver

from .. import conf
from ..contrib.observe.observing import aconclude, conclude, watch
from ..core.concurrency.cancellation import run_to_completion
from ..core.policy import OBSERVE, SAFE_METHODS
from ..core.records import Guarantee
from ..errors import ConfigurationError, OperationUnknown, Problem, TransactionLost
from ..http.access import ask_again
from ..http.admission import key_with_owner
from ..http.atomic_requests import guarded_alias, leave_while_guarded, non_atomic_aliases
from ..http.exchange import Exchange
from ..http.facts import facts_of
from ..http.keys import user_of
from ..http.markers import rest_class
from ..http.problems import aproblem_response, problem_response
from ..http.status import note, noted, stamp
from ..http.terms import resolve_policy
from ..http.unguarded import areport_unguarded, is_left_unguarded, note_unreached, report_unguarded
from .passing import POLICY, is_keyless, may_refuse, passes

#: On a request: its way through the middleware, until that has its response.
_PASSAGE = "_idempotency_passage"


@dataclass(slots=True, eq=False)
class _Passage:
    """What the `__call__` that a request has come to first knows of it. Only that one opens a guard, and closes it."""

    request: HttpRequest  # a copy of it is another request
    in_loop: bool
    #: Has process_view seen it? Whoever calls that again, such as decorator_from_middleware(), would close nothing.
    seen: bool = False
    #: The exchange that the middleware opened, not that of an inner guard.
    exchange: Exchange | None = None

    def meets_again(self, request: HttpRequest) -> bool:
        """Has process_view seen this request before? From now on it has."""
        if self.request is not request:
            return False
        seen, self.seen = self.seen, True
        return seen


def _passage(request: HttpRequest) -> _Passage | None:
    found: _Passage | None = getattr(request, _PASSAGE, None)
    return found if found is not None and found.request is request else None


def _begin(request: HttpRequest, *, in_loop: bool) -> _Passage:
    passage = _Passage(request, in_loop)
    setattr(request, _PASSAGE, passage)
    note(request, None)  # the same request may be sent through again
    return passage


def _closing(request: HttpRequest, *, in_loop: bool) -> _Passage:
    """Return what will close a guard that is opened now. Raises `ConfigurationError` if __call__ has not seen this key or view."""
    passage = _passage(request)
    if passage is None or passage.in_loop != in_loop:
        raise ConfigurationError(
            "IdempotencyMiddleware would open a guard that nothing closes: a middleware after it has changed the key or the "
            "URLconf of this request, or it is around a view, and not in MIDDLEWARE. Put it last in MIDDLEWARE; around one "
            "view type @idempotent()."
        )
    return passage


class IdempotencyMiddleware:
    """Guards every unsafe request that carries a key and has a principal."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        conf.require_installed()
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)
            self.process_view = self.aprocess_view  # type: ignore[assignment]

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if (
            request.method in SAFE_METHODS
            or not (facts := facts_of(request)).may_ask
            or not facts.asks_for_guard(POLICY)
            or _passage(request)
        ):
            return self.get_response(request)  # type: ignore[no-any-return]
        return self._acall(request) if self.is_async else self._call(request, self.get_response)

    # ------------------------------------------------------------------------------------------------- the response

    def _call(self, request: HttpRequest, get_response: Callable[[HttpRequest], HttpResponseBase]) -> HttpResponseBase:
        passage = _begin(request, in_loop=False)
        try:
            try:
                response = get_response(request)
            except BaseException as error:
                if passage.exchange is not None:
                    return problem_response(passage.exchange.fail(error), request)
                self._report(request)
                raise
            finally:
                guarded_alias.set(None)  # a thread outlives its requests, and the next may not pass this middleware
            if passage.exchange is None:
                self._judge(request, response)
                self._report(request)
                conclude(request, response)
                return stamp(request, response)
            try:
                return passage.exchange.settle(response)
            except Problem as problem:
                return problem_response(problem, request)
        finally:
            setattr(request, _PASSAGE, None)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        if not self._runs_async(request):
            # One hop: claim, view, settle and COMMIT in one thread call, which a disconnecting client cannot cancel.
            return await run_to_completion(sync_to_async(self._call)(request, async_to_sync(self.get_response)))
        passage = _begin(request, in_loop=True)
        try:
            try:
                response: HttpResponseBase = await self.get_response(request)
            except BaseException as error:
                if passage.exchange is not None:
                    problem = await run_to_completion(passage.exchange.afail(error))
                    return await aproblem_response(problem, request)
                await self._areport(request)
                raise
            if passage.exchange is None:
                self._judge(request, response)
                await self._areport(request)
                await aconclude(request, response)
                return stamp(request, response)
            try:
                return await run_to_completion(passage.exchange.asettle(response))
            except Problem as problem:
                return await aproblem_response(problem, request)
        finally:
            setattr(request, _PASSAGE, None)

    def _judge(self, request: HttpRequest, response: HttpResponseBase) -> None:
        """Report a keyed request that no entry point has handled."""
        if noted(request) is None and not is_left_unguarded(request) and facts_of(request).carries_key():
            note_unreached(request, response)

    def _report(self, request: HttpRequest) -> None:
        """Report why a request ran unguarded, now that nothing closer to the view has guarded it."""
        if noted(request) is None:
            report_unguarded(request)

    async def _areport(self, request: HttpRequest) -> None:
        """See _report()."""
        if noted(request) is None:
            await areport_unguarded(request)

    def _runs_async(self, request: HttpRequest) -> bool:
        """Is the request's view async? Resolved ahead of Django, only on ASGI and with a key."""
        try:
            match = get_resolver(getattr(request, "urlconf", None)).resolve(request.path_info)
        except Http404:
            return True  # no view, so no thread is needed
        return iscoroutinefunction(match.func)

    # ----------------------------------------------------------------------------------------------------- the view

    def process_view(
        self, request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """Claim and open the guard; return a response only for a replay or a problem."""
        if (passage := getattr(request, _PASSAGE, None)) is not None and passage.meets_again(request):
            return None
        guarded_alias.set(None)
        try:
            if passes(request, callback):
                return None
            # DRF's: the guard belongs after its authentication and permissions.
            if rest_class(callback) is not None and not iscoroutinefunction(callback) and may_refuse(request):
                from ..rest_framework.view_adapter import run_with_mixin

                adapted: HttpResponseBase | None = run_with_mixin(callback, request, args, kwargs)
                return adapted
            exchange = self._admit(request, callback, args, kwargs, getattr(request, "user", None))
            return None if exchange is None else self._open_in_thread(request, callback, exchange)
        except Problem as problem:
            return problem_response(problem, request)
        except (ConfigurationError, ImproperlyConfigured) as error:
            if conf.get("MODE") != OBSERVE:
                raise
            watch(request, None, refusal=error)
            return None

    async def aprocess_view(
        self, request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """See process_view()."""
        guarded_alias.set(None)
        if request.method in SAFE_METHODS or is_keyless(request, callback):
            return None
        if not iscoroutinefunction(callback):  # in _call()'s own thread
            return await sync_to_async(type(self).process_view)(self, request, callback, args, kwargs)
        asks_project = bool(conf.get("EXEMPT"))  # its functions may query a database
        try:
            if ((passage := _passage(request)) is not None and passage.meets_again(request)) or (
                await sync_to_async(passes)(request, callback) if asks_project else passes(request, callback)
            ):
                return None
            user = await user_of(request, POLICY)
            exchange = await sync_to_async(self._admit)(request, callback, args, kwargs, user)
            return None if exchange is None else await self._open_in_loop(request, exchange)
        except Problem as problem:
            return await aproblem_response(problem, request)
        except (ConfigurationError, ImproperlyConfigured) as error:
            if conf.get("MODE") != OBSERVE:
                raise
            watch(request, None, refusal=error)
            return None

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """Note that the view raised. The response will be the project's, except for our own problems."""
        if (passage := _passage(request)) is None or (exchange := passage.exchange) is None:
            return None
        exchange.raised = exception
        if (problem := exchange.course.left_by(exception)) is not None:
            return problem_response(problem, request)
        if isinstance(exception, TransactionLost) or (exchange.degraded and isinstance(exception, OperationUnknown)):
            return problem_response(exception, request)
        return None

    def _open_in_thread(self, request: HttpRequest, callback: Any, exchange: Exchange) -> HttpResponseBase | None:
        passage = _closing(request, in_loop=False)
        leave_while_guarded(callback)
        if (replay := exchange.open()) is None:
            passage.exchange = exchange
            guarded_alias.set(exchange.atomic_alias)
        return replay

    async def _open_in_loop(self, request: HttpRequest, exchange: Exchange) -> HttpResponseBase | None:
        passage = _closing(request, in_loop=True)
        if (replay := await exchange.aopen()) is None:
            passage.exchange = exchange
        return replay

    def _admit(
        self, request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any], user: Any
    ) -> Exchange | None:
        if (key := key_with_owner(request, POLICY, user=user, by="middleware")) is None:
            return None
        terms = resolve_policy(POLICY)
        if iscoroutinefunction(callback) and (terms.guarantee == Guarantee.ATOMIC or rest_class(callback) is not None):
            name = getattr(callback, "__qualname__", repr(callback))
            raise ConfigurationError(
                f"The middleware cannot guard {name}, which is async: not atomically, and not behind the checks of an "
                'async REST framework. Put @idempotent(guarantee="lease") or IdempotentViewMixin on it, or '
                "@idempotency_exempt."
            )
        asking = partial(ask_again, request, callback, args, kwargs)
        non_atomic = non_atomic_aliases(callback)
        return Exchange.of(
            request, terms, key=key, user=user, source=request, strict=False, non_atomic=non_atomic, ask_again=asking
        )
