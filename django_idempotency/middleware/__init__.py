"""The middleware: a guard for the whole project, for views without one of their own.

It comes after every middleware that has a `process_view`, since a request that those refuse must not be replayed. Its own
runs the view under guard, as the decorator would.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from .. import conf
from ..core.concurrency.cancellation import run_to_completion
from ..core.policy import SAFE_METHODS
from ..errors import ConfigurationError, Problem
from ..http.access import ask_again
from ..http.admission import aadmit, admit
from ..http.atomic_requests import non_atomic_aliases
from ..http.exchange import call_on
from ..http.markers import rest_class
from ..http.plan import asking, may_refuse, plan_of
from ..http.problems import aproblem_response, problem_response
from ..http.raised import Raising
from ..http.run import aconclude, arun_call, conclude, run_call
from ..http.status import note, noted, stamp
from ..http.unguarded import areport_unguarded, is_left_unguarded, note_unreached, report_unguarded
from ..http.wings import wing
from .passing import POLICY, is_keyless, passes


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
        """Report a keyed request to which something responded before its view, or which runs unguarded."""
        if (plan := asking(POLICY, request)) is None or (plan.in_body and not plan.required):
            return self.get_response(request)  # type: ignore[no-any-return]
        note(request, None)  # the same request may be sent through again
        return self._acall(request) if self.is_async else self._call(request)

    def _call(self, request: HttpRequest) -> HttpResponseBase:
        try:
            response: HttpResponseBase = self.get_response(request)
        except BaseException:
            if noted(request) is None:
                report_unguarded(request)
            raise
        if noted(request) is None:
            _judge(request, response)
            report_unguarded(request)
        conclude(request, response)
        return stamp(request, response)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        try:
            response: HttpResponseBase = await self.get_response(request)
        except BaseException:
            if noted(request) is None:
                await areport_unguarded(request)
            raise
        if noted(request) is None:
            _judge(request, response)
            await areport_unguarded(request)
        await aconclude(request, response)
        return stamp(request, response)

    def process_view(
        self, request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """Return the response of a view under guard; `None`: there is nothing to guard, or a guard closer to the view."""
        non_atomic, call = non_atomic_aliases(callback), None
        try:
            if call_on(request) is not None or passes(request, callback):
                return None
            # DRF's: the guard belongs after its authentication and permissions.
            if rest_class(callback) is not None and not iscoroutinefunction(callback) and may_refuse(POLICY, request):
                from ..rest_framework.view_adapter import run_with_mixin

                return run_with_mixin(callback, request, args, kwargs)  # type: ignore[no-any-return]
            _refuse_async(callback)
            facts = _facts(request, callback, args, kwargs)
            user = getattr(request, "user", None)
            call = admit(request, POLICY, user=user, source=request, non_atomic=non_atomic, **facts)
        except Problem as problem:
            return problem_response(problem, request)
        except (ConfigurationError, ImproperlyConfigured) as error:
            _observe(request, error)
        if call is None:
            return None
        view = async_to_sync(callback) if iscoroutinefunction(callback) else callback
        return _shown(lambda: run_call(call, request, partial(view, request, *args, **kwargs), non_atomic=non_atomic))

    async def aprocess_view(
        self, request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """See process_view()."""
        if request.method in SAFE_METHODS or is_keyless(request, callback):
            return None
        if not iscoroutinefunction(callback):
            # One hop: claim, view, settle and COMMIT in one thread call, which a disconnecting client cannot cancel.
            in_thread = sync_to_async(type(self).process_view)
            return await run_to_completion(in_thread(self, request, callback, args, kwargs))
        asks_project, call = bool(plan_of(POLICY).exemptions), None  # its functions may query a database
        try:
            if await sync_to_async(passes)(request, callback) if asks_project else passes(request, callback):
                return None
            _refuse_async(callback)
            call = await aadmit(request, POLICY, **_facts(request, callback, args, kwargs))
        except Problem as problem:
            return await aproblem_response(problem, request)
        except (ConfigurationError, ImproperlyConfigured) as error:
            _observe(request, error)
        if call is None:
            return None
        return await _ashown(arun_call(call, request, partial(callback, request, *args, **kwargs)))


def _shown(run: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Return a view's response. An exception is raised where Django shows it to the `process_exception` of each middleware."""
    try:
        return run()
    except Exception as error:  # noqa: BLE001 - raised again
        return Raising(error)


async def _ashown(running: Awaitable[HttpResponseBase]) -> HttpResponseBase:
    """See _shown()."""
    try:
        return await running
    except Exception as error:  # noqa: BLE001 - raised again
        return Raising(error)


def _facts(request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what only the middleware knows of a call: it guards a view that knows nothing of keys."""
    return {"by": "middleware", "strict": False, "ask_again": partial(ask_again, request, callback, args, kwargs)}


def _refuse_async(callback: Any) -> None:
    if not iscoroutinefunction(callback) or (plan_of(POLICY).leases and rest_class(callback) is None):
        return
    name = getattr(callback, "__qualname__", repr(callback))
    raise ConfigurationError(
        f"The middleware cannot guard {name}, which is async: not atomically, and not behind the checks of an "
        'async REST framework. Put @idempotent(guarantee="lease") or IdempotentViewMixin on it, or '
        "@idempotency_exempt."
    )


def _observe(request: HttpRequest, error: Exception) -> None:
    """Report a wrong setting where the middleware only observes; elsewhere raise it."""
    if not plan_of(POLICY).observes:
        raise error
    wing("observe").watch(request, None, refusal=error)


def _judge(request: HttpRequest, response: HttpResponseBase) -> None:
    """Report a keyed request that no entry point has handled."""
    if not is_left_unguarded(request) and plan_of(POLICY).carries_key(request.META):
        note_unreached(request, response)
