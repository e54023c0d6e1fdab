"""Checks of ROUTES: what cannot be read, guards nothing, or is not asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage

from ..http.plan import EVERY_VIEW, plan_of
from ..http.views import route_of
from ..stores.check_messages import Finding, and_more, shown
from .guards import methods_of
from .middleware import guards_every_view
from .policies import policy_errors
from .settings import after_settings
from .urlconf import Route, are_exempt, routes


class E146(Finding):
    """IDEMPOTENCY["ROUTES"] guards nothing: MIDDLEWARE has no IdempotencyMiddleware.

    Add "django_idempotency.middleware.IdempotencyMiddleware" as the last line of MIDDLEWARE, or
    leave "ROUTES" out.
    """


class E147(Finding):
    """IDEMPOTENCY["ROUTES"] has %(entry)s, and IdempotencyMiddleware cannot guard
    %(view)s%(others)s: it is %(called)s, which checks access inside.

    Put @idempotent() on it, or take the entry out.
    """


class W146(Finding):
    """IDEMPOTENCY["ROUTES"] has %(entry)s, which decides for no route: none is like it, or EXEMPT
    or an entry above it comes first.

    Type what python manage.py idempotency_routes shows, such as "%(close)s"; or move the entry up,
    or take it out.
    """


@after_settings
def check_routed(**_: Any) -> Iterator[CheckMessage]:
    """Check the entries against the URLconf, once the settings are in order."""
    table = plan_of(EVERY_VIEW).routed
    if not table or not guards_every_view():
        yield from [E146()] if table else []
        return
    found = [(route, route.by_middleware()) for route in routes() if not are_exempt([route])]
    close = next((f"name:{route.view_name}" for route, _ in found if route.name), "path:/payments/")
    for pattern, policy in table:
        entry = shown(pattern.text)
        yield from policy_errors(f'IDEMPOTENCY["ROUTES"][{entry}]', policy, coroutine=None)
        its = [route for route, (_, by, perhaps) in found if pattern.text in (by, *perhaps)]
        if not its:
            yield W146(entry=entry, close=close)
        called = {
            f"the view of {route.path}": kind.called
            for route in its
            if (kind := _left(route)) is not None
        }
        if left := list(called):
            yield E147(entry=entry, view=left[0], others=and_more(left), called=called[left[0]])


def _left(route: Route) -> Any:
    """Return the kind of a view that the middleware leaves alone, if it does not guard itself."""
    known = [route_of(route.callback, method) for method in methods_of(route.callback)]
    return next(
        (
            each.kind
            for each in known
            if each.kind.left is not None and not (each.guards_itself or each.exempt)
        ),
        None,
    )
