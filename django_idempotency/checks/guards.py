"""What guards each route of the project, decided without a request, by the rules of the entry
points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from itertools import chain
from typing import Any

from django.core.checks import ERROR

from .. import conf
from ..core.dialects import is_dialect
from ..core.policy import ENFORCE, SAFE_METHODS, Policy
from ..http.exemptions import exemptions
from ..http.kinds import kind_of, operation_of, operations_of
from ..http.markers import handler_of, mark_of, view_class
from ..http.views import own_policy, route_of, unknown_before
from .middleware import guards_every_view
from .routes import middleware_problems, operation_problems, own_problems, refusals
from .urlconf import Route, has_operations, name_of, open_handlers, routes


class GuardKind(Enum):
    """What guards a handler."""

    MIXIN = "mixin"
    DECORATOR = "decorator"
    MIDDLEWARE = "middleware"
    EXEMPT = "exempt"  # by choice of the project
    NOTHING = "nothing"  # a keyed request runs, and is reported as unguarded
    ERROR = "error"  # a keyed request raises
    SAFE = "safe"  # it has no unsafe method
    SHADOWED = "shadowed"  # an earlier route has the same path, so it is never reached


_NO_ENTRY_POINT = (
    "no entry point of django-idempotency is around it; what it calls is not looked at"
)
_NO_METHOD = "the method is not among its policy's methods"
#: A request with a key runs without a guard, or cannot run at all, and the project has not asked
#: for that.
OPEN = frozenset({GuardKind.NOTHING, GuardKind.ERROR})
GUARDING = frozenset({GuardKind.MIXIN, GuardKind.DECORATOR, GuardKind.MIDDLEWARE})


@dataclass(frozen=True, kw_only=True)
class Row:
    """One route, with those of its unsafe methods that share a guard."""

    methods: tuple[str, ...] = ()
    path: str
    name: str | None
    view: str
    guard: GuardKind = GuardKind.SAFE
    #: Guarantee, store and required, and every other field that differs from the settings.
    terms: dict[str, Any] = field(default_factory=dict)
    #: Why it is exempt, is not guarded or cannot be; or another remark.
    why: str = ""
    callback: Any = field(default=None, repr=False)
    #: The policy of the guard; `None`: there is no guard, or the view chooses a policy for each
    #: request.
    policy: Policy | None = field(default=None, repr=False, compare=False)


def rows() -> Iterator[Row]:
    """Yield what guards each route, in the order in which Django tries them."""
    under_middleware = guards_every_view()
    reached: dict[str, Any] = {}
    seen = set()
    for route in routes():
        if (route.path, id(route.callback)) in seen:
            continue  # a path may be listed once for each of its operations
        seen.add((route.path, id(route.callback)))
        first = reached.setdefault(route.path, route.callback)
        about = Row(
            path=route.path,
            name=route.name and route.view_name,
            view=name_of(route.callback),
            callback=route.callback,
        )
        if first is not route.callback:
            yield replace(about, guard=GuardKind.SHADOWED)
            continue
        found = [
            _row(about, route, method, under_middleware) for method in methods_of(route.callback)
        ]
        yield from _merged(found) or [about]


def guards_of(route: Route) -> Iterator[tuple[str, Policy | None]]:
    """Yield each guarded unsafe method of a route, with its policy; `None`: the view chooses one
    for each request.
    """
    under_middleware = guards_every_view()
    about = Row(path=route.path, name=None, view="")
    for method in methods_of(route.callback):
        row = _row(about, route, method, under_middleware)
        if row.guard in GUARDING:
            yield method, row.policy


def _merged(found: list[Row]) -> list[Row]:
    merged: list[Row] = []
    for row in found:
        same = next((each for each in merged if replace(each, methods=row.methods) == row), None)
        if same is None:
            merged.append(row)
        else:
            merged[merged.index(same)] = replace(same, methods=same.methods + row.methods)
    return merged


def methods_of(callback: Any) -> list[str]:
    """Return the unsafe methods that a view may handle."""
    if has_operations(callback):
        every = [method for operation in operations_of(callback) for method in operation.methods]
        return [method for method in dict.fromkeys(every) if method not in SAFE_METHODS]
    return [name.upper() for name in open_handlers(callback)]


def _row(about: Row, route: Route, method: str, under_middleware: bool) -> Row:
    callback = route.callback
    operation = operation_of(callback, method)
    if operation is not None:
        about = replace(about, view=name_of(operation.view_func))
    about = replace(about, methods=(method,))
    if route_of(callback, method).guards_itself:
        row = _own(about, callback, method)
        subject = operation if operation is not None else callback
        problems = (operation_problems if operation is not None else own_problems)(
            subject, about.view
        )
    elif under_middleware:
        row = _by_middleware(about, route, method)
        problems = chain(
            refusals(callback, about.view),
            middleware_problems(callback, about.view, route.by_middleware()[0]),
        )
    else:
        why = _exempted(route, method)
        guard = GuardKind.EXEMPT if why else GuardKind.NOTHING
        row = replace(about, guard=guard, why=why or _NO_ENTRY_POINT)
        problems = refusals(callback, about.view)
    error = next((problem.msg for problem in problems if problem.level >= ERROR), None)
    if error is not None and row.guard is not GuardKind.EXEMPT and row.why != _NO_METHOD:
        return replace(row, guard=GuardKind.ERROR, terms={}, why=error)
    return row


def _own(about: Row, callback: Any, method: str) -> Row:
    """Return the row of a view that guards itself, by the marks that the middleware reads."""
    handler = handler_of(callback, method)
    cls = view_class(callback)
    mixed = hasattr(cls, "get_idempotency_policy")
    if mixed and mark_of(handler).exempt:
        return replace(about, guard=GuardKind.EXEMPT, why="@idempotency_exempt")
    guard = (
        GuardKind.MIXIN
        if mixed and route_of(callback, method).policy is None
        else GuardKind.DECORATOR
    )
    policy = own_policy(callback, method)
    if policy is None:
        return replace(about, guard=guard, why="its policy depends on the request")
    return _under(about, guard, policy)


def _exempted(route: Route, method: str) -> str:
    """Say how the project has declared that a route needs no guard; "" if it has not."""
    return route_of(route.callback, method).exempt or next(
        (f"EXEMPT: {entry.text}" for entry in exemptions() if route.covered_by(entry)), ""
    )


def _by_middleware(about: Row, route: Route, method: str) -> Row:
    if why := _exempted(route, method):
        return replace(about, guard=GuardKind.EXEMPT, why=why)
    policy, entry, routed = route.by_middleware()
    if why := _out_of_reach(route.callback, policy):
        guard = GuardKind.ERROR if conf.field(policy, "required") is True else GuardKind.NOTHING
        return replace(about, guard=guard, why=f"the middleware {why}")
    perhaps = ", ".join(entry.text for entry in exemptions() if route.covered_by(entry) is None)
    row = _under(about, GuardKind.MIDDLEWARE, policy)
    if row.guard is GuardKind.MIDDLEWARE:
        unless = [f"EXEMPT: {perhaps}"] * bool(perhaps) + [f"ROUTES: {each}" for each in routed]
        origin = f"ROUTES: {entry}" if entry else ""
        remarks = (
            origin,
            f"unless {', '.join(unless)}" if unless else "",
            _unasked(route.callback, method, policy),
        )
        row = replace(row, why="; ".join(filter(None, remarks)))
    return row


def _out_of_reach(callback: Any, policy: Policy) -> str:
    """Say why the middleware leaves a view to a guard of its own."""
    if conf.profile_of(policy.profile).carrier == "body":
        return "looks for no key in a body"
    kind = kind_of(callback)
    return "" if kind.left is None else f"cannot guard {kind.called}"


def _unasked(callback: Any, method: str, policy: Policy) -> str:
    """Say why the middleware guards a view, and refuses its replays."""
    if conf.field(policy, "authorize_replay") is not None:
        return ""
    layer = unknown_before(callback, method)
    return f"its replays are refused: what {layer} checks is not known" if layer else ""


def _under(about: Row, guard: GuardKind, policy: Policy) -> Row:
    if about.methods[0] not in {name.upper() for name in conf.field(policy, "methods")}:
        return replace(about, guard=GuardKind.NOTHING, why=_NO_METHOD)
    return replace(about, guard=guard, terms=terms(policy), policy=policy)


def terms(policy: Policy) -> dict[str, Any]:
    """Return guarantee, store and required of a policy, a mode that does not guard, and what
    differs from the settings.
    """
    always = {name: conf.field(policy, name) for name in ("guarantee", "store", "required")}
    given = {
        name: value
        for name, value in policy.given().items()
        if _plain(value) != _plain(conf.get(name.upper()))
    }
    if conf.field(policy, "mode") != ENFORCE:
        given["mode"] = "observe"
    return {name: _plain(value) for name, value in {**always, **given}.items()}


def _plain(value: Any) -> Any:
    """Return a value that JSON can express: a function by its name."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, timedelta):
        length = value.total_seconds()
        return int(length) if length.is_integer() else length
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if is_dialect(value):
        return value.name
    if isinstance(value, (list, tuple, set, frozenset)):
        return sorted(str(_plain(each)) for each in value)
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if isinstance(name, str) else str(value)
