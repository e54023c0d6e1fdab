"""The middleware: a guard for the whole project, for views without one of their own.

Its `process_view` runs the view under guard, as the decorator would, or returns the stored
response. Django then asks no other, so it comes after every middleware whose `process_view` refuses
requests.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NoReturn

from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.utils.deprecation import MiddlewareMixin
from django.utils.encoding import escape_uri_path

from . import conf
from .core.concurrency import run_to_completion
from .core.policy import SAFE_METHODS
from .engine.bracket import aguarded, guarded
from .errors import ConfigurationError, Problem, ReplayRefused, ReplayUnchecked
from .http import counting
from .http.access_checks import may_pass
from .http.admission import Keyed, asking, auser_of, call_of, key_with_owner
from .http.atomic_requests import aliases_of, as_django_runs
from .http.call import Call
from .http.exchange import Exchange, exchange_of, noted_of, stamp, without_key
from .http.kinds import EXEMPT, Reason
from .http.markers import handler_of, view_class
from .http.plan import EVERY_VIEW, Plan, may_refuse, plan_of
from .http.problems import problem_response
from .http.run import aconclude, conclude, require_lease
from .http.unguarded import (
    METHOD,
    areport_unguarded,
    is_left_unguarded,
    leave_unguarded,
    note_unreached,
    report_unguarded,
)
from .http.views import PlannedRoute, planned_route, route_of
from .instrumentation.meters import meters
from .instrumentation.outcomes import UNKEYED
from .stores.lending import in_database_thread

logger = logging.getLogger("django_idempotency")


class IdempotencyMiddleware(MiddlewareMixin):
    """Guards every unsafe request that carries a key and has a principal."""

    get_response: Callable[[HttpRequest], Any]

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        conf.require_installed()
        super().__init__(get_response)
        if self.async_mode:
            self.process_view = self.aprocess_view  # type: ignore[assignment]

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Report a keyed request to which something responded before its view, or which runs
        unguarded.
        """
        plan = asking(EVERY_VIEW, request)
        if plan is None or (plan.in_body and plan.required is not True and not plan.routed):
            return self.get_response(request)  # type: ignore[no-any-return]
        exchange = exchange_of(request)
        exchange.status = exchange.stamped = None  # the same request may be sent through again
        return self._acall(request, exchange) if self.async_mode else self._call(request, exchange)

    def _call(self, request: HttpRequest, exchange: Exchange) -> HttpResponseBase:
        try:
            response: HttpResponseBase = self.get_response(request)
        except BaseException:
            if exchange.status is None:
                report_unguarded(request)
            raise
        # By the view's own guard, or by ours.
        if exchange.stamped is not None and exchange.stamped() is response:
            return response
        if exchange.status is None:
            _note_unhandled(request, response)
            report_unguarded(request)
        conclude(request, response)
        return stamp(request, response)

    async def _acall(self, request: HttpRequest, exchange: Exchange) -> HttpResponseBase:
        try:
            response: HttpResponseBase = await self.get_response(request)
        except BaseException:
            if exchange.status is None:
                await areport_unguarded(request)
            raise
        # By the view's own guard, or by ours.
        if exchange.stamped is not None and exchange.stamped() is response:
            return response
        if exchange.status is None:
            _note_unhandled(request, response)
            await areport_unguarded(request)
        await aconclude(request, response)
        return stamp(request, response)

    def process_view(
        self, request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """Return the response of a view under guard; `None`: there is nothing to guard, or a guard
        closer to the view.
        """
        route = _asking(request, callback)
        if route is None:
            return None
        run = None
        try:
            run = _guarded(request, route, args, kwargs)
        except Problem as problem:
            return problem_response(problem, request)
        except (ConfigurationError, ImproperlyConfigured) as error:
            _observe(request, error, route.plan)
        if run is None:
            return None
        try:
            return as_django_runs(callback, run)()
        except Exception as error:  # noqa: BLE001 - raised where Django shows it to each middleware
            return Raising(error)

    async def aprocess_view(
        self, request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """See process_view()."""
        route = _asking(request, callback)
        if route is None:
            return None
        if not route.is_async:
            # One hop: claim, view, settle and COMMIT in one thread call, which a disconnecting
            # client cannot cancel.
            process_view = sync_to_async(type(self).process_view)
            return await run_to_completion(process_view(self, request, callback, args, kwargs))
        call = None
        try:
            # A function of EXEMPT may query a database.
            passes = partial(_passes, request, route)
            if not await in_database_thread(passes, when=bool(route.plan.exemptions)):
                user = await auser_of(request, route.plan.policy)
                policy = route.plan.policy
                owned = partial(key_with_owner, request, policy, user=user, by="middleware")
                keyed = await in_database_thread(owned, keep=True)
                known = partial(_call_of, request, route, keyed, user, args, kwargs)
                keep = keyed is not None and keyed.claims_in_database
                call = await in_database_thread(known, keep=keep, when=keyed is not None)
        except Problem as problem:
            return await in_database_thread(problem_response, problem, request)
        except (ConfigurationError, ImproperlyConfigured) as error:
            _observe(request, error, route.plan)
        if call is None:
            return None
        require_lease(call)
        try:
            return await aguarded(call, partial(callback, request, *args, **kwargs))
        except Exception as error:  # noqa: BLE001 - raised where Django shows it to each middleware
            return Raising(error)


def _guarded(
    request: HttpRequest, route: PlannedRoute, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[], HttpResponseBase] | None:
    """Return what runs the view of a request under guard, or `None`: there is nothing to guard."""
    if _passes(request, route):
        return None
    policy = route.plan.policy
    # DRF's: the guard belongs after its authentication and permissions.
    if route.known.rest is not None and not route.is_async and may_refuse(policy, request):
        view = _inside(route)
        return None if view is None else partial(view, request, *args, **kwargs)
    user = getattr(request, "user", None)
    keyed = key_with_owner(request, policy, user=user, by="middleware")
    call = _call_of(request, route, keyed, user, args, kwargs)
    if call is None:
        return None
    view = async_to_sync(route.callback) if route.is_async else route.callback
    return partial(guarded, call, partial(view, request, *args, **kwargs))


def _inside(route: PlannedRoute) -> Any:
    """Return a view of REST framework with a guard inside, made once; `None`: it takes no such
    method.

    Raises `ImproperlyConfigured` for one that cannot have it.
    """
    if route.inside is None and handler_of(route.callback, route.method) is not None:
        # Not above: needs REST framework.
        from .rest_framework.guarding import ViewTerms
        from .rest_framework.without_mixin import guarded_inside

        terms = ViewTerms(route.plan.policy, strict=False)
        route.inside = guarded_inside(route.callback, terms)
    return route.inside


def _call_of(  # noqa: PLR0917 - what Django gives a middleware
    request: HttpRequest,
    route: PlannedRoute,
    keyed: Keyed | None,
    user: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Call | None:
    """Return the call of a keyed request, whose view knows nothing of keys.

    Raises `ConfigurationError` for an async view that the middleware cannot guard.
    """
    if keyed is None:
        return None
    if route.is_async and (route.known.rest is not None or not route.plan.leases):
        raise ConfigurationError(
            f"The middleware cannot guard {_name_of(route.callback)}, which is async: not "
            "atomically, and not behind the checks of an async REST framework. Put "
            '@idempotent(guarantee="lease") or IdempotentViewMixin on it, or '
            "@idempotency_exempt."
        )
    facts: dict[str, Any] = {}
    before = route.before
    asks = bool(before.tests) or before.make is not None
    if asks or before.unknown:
        facts["ask_again"] = partial(_ask_again, request, route, args, kwargs)
    if not before.unknown and (asks or before.is_closed):
        facts["refuses"] = partial(_refuses, request, route, args, kwargs)
    return call_of(request, keyed, user=user, source=request, strict=False, **facts)


def _refuses(
    request: HttpRequest, route: PlannedRoute, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Does what stands before a view refuse a request?"""
    return route.before.is_closed or not may_pass(route.before, request, args, kwargs)


def _ask_again(
    request: HttpRequest,
    route: PlannedRoute,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    authorized: bool,
) -> None:
    """Repeat every access check before a view.

    Raises `ReplayRefused` if one refuses the request, and `ReplayUnchecked` if one is not known,
    unless the project checks replays itself (`authorized`).
    """
    layer = route.before.unknown
    if layer and authorized:
        return
    if layer:
        logger.warning(
            "A replay of %s %s is refused: %s stands before %s, and it is not known what that "
            "checks. Put @idempotent() on the view, below it.",
            request.method,
            escape_uri_path(request.path),
            layer,
            _name_of(route.callback),
        )
        raise ReplayUnchecked
    if not may_pass(route.before, request, args, kwargs):
        raise ReplayRefused


# -------------------------------------------------------------------------------- what it lets pass


def _asking(request: HttpRequest, callback: Any) -> PlannedRoute | None:
    """Return the route of a request that has a key, or needs one, unless its view has a guard of
    its own.

    Any other is counted, unless the view's own guard counts it.
    """
    plan = asking(EVERY_VIEW, request)
    if plan is not None and plan.routed:
        plan = plan.at(request, callback)
    if plan is not None and (plan.required is True or not plan.in_body):
        route: PlannedRoute = plan.routes.get(
            (id(callback), request.method or "")
        ) or planned_route(plan, callback, request.method or "")
        return None if route.known.guards_itself and not route.known.exempt else route
    if not hasattr(request, "idempotency"):
        request.idempotency = without_key()  # type: ignore[attr-defined]
    if meters.active and request.method not in SAFE_METHODS:
        known = route_of(callback, request.method or "")
        if not known.exempt and not known.guards_itself:
            # Which the mixin would guard.
            by = "middleware" if known.rest is None else "rest_framework"
            counting.begin(request, EVERY_VIEW, by)
            counting.count(request, UNKEYED)
    return None


def _passes(request: HttpRequest, route: PlannedRoute) -> bool:
    """Does a request pass, since a guard closer to the view guards it, or none can?

    Where it asked for one that is reported.
    """
    plan = route.plan
    known = noted_of(request)
    if known is not None and known.call is not None:
        return True
    if route.is_async and aliases_of(route.callback):
        return True  # which Django refuses
    if request.method not in plan.methods and not plan.profile.refuses_methods:
        return _left(request, plan, METHOD)
    if route.known.exempt:
        return _left(request, plan, EXEMPT)
    return bool(plan.exemptions or plan.in_body or route.known.kind.left) and _is_left(
        request, route
    )


def _is_left(request: HttpRequest, route: PlannedRoute) -> bool:
    """Is a view without a guard of its own exempt, or of a kind that only its own guard can
    protect?
    """
    plan = route.plan
    callback = route.callback
    kind = route.known.kind
    for exemption in plan.exemptions:
        if exemption.covers(request, callback):
            return _left(request, plan, EXEMPT, f'"EXEMPT" has {exemption.text!r}')
    if plan.in_body:  # most requests have no key there, and to look for one costs each of them
        raise ConfigurationError(
            'The middleware looks for no key in a body, and "REQUIRED" is set with a '
            '"PROFILE" that has it there. Put '
            f"@idempotent() on {_name_of(callback)}, or @idempotency_exempt."
        )
    if kind.left is None:
        return False
    if plan.required is True:
        raise ConfigurationError(
            f'The middleware cannot guard {request.path}, {kind.called}, and "REQUIRED" is '
            f"set. {kind.fix}, or @idempotency_exempt."
        )
    return _left(request, plan, kind.left)


def _left(request: HttpRequest, plan: Plan, reason: Reason, sentence: str = "") -> bool:
    if plan.carries_key(request.META):
        leave_unguarded(request, reason, sentence)
    return True


def _observe(request: HttpRequest, error: Exception, plan: Plan) -> None:
    """Report a wrong setting where the middleware only observes; elsewhere raise it."""
    if plan.observer is None:
        raise error
    plan.observer.watch(request, None, refusal=error)


def _note_unhandled(request: HttpRequest, response: HttpResponseBase) -> None:
    """Note the status of a keyed request that no entry point has handled."""
    if not is_left_unguarded(request) and (
        exchange_of(request).plan or plan_of(EVERY_VIEW)
    ).carries_key(request.META):
        note_unreached(request, response)


def _name_of(callback: Any) -> str:
    """Name a view, or its class."""
    view = view_class(callback) or callback
    return getattr(view, "__qualname__", None) or repr(view)


class Raising(SimpleTemplateResponse):
    """Raises when Django renders it: then Django calls each `process_exception`, as it does not
    for what a `process_view` raises.
    """

    def __init__(self, error: Exception) -> None:
        # The process_template_response of a middleware may add to its context.
        super().__init__("", {})
        self.error: Exception | None = error

    def render(self) -> NoReturn:
        """Raise the exception of the view."""
        error = self.error
        self.error = None
        assert error is not None, "Django renders it once"
        try:
            raise error
        finally:
            del error  # its traceback has this frame
