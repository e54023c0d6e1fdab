"""Checks of each route of the URLconf. Only what can be proven wrong is an error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.core.checks import CheckMessage
from django.db import connections

from .. import conf
from ..core.policy import Policy
from ..core.records import Guarantee
from ..http.atomic_requests import AllAliases, excluded_aliases, non_atomic_aliases
from ..http.exemptions import exemptions
from ..http.kinds import kind_of
from ..http.layers import layers_of, name_of_code
from ..http.markers import (
    POLICY,
    REFUSAL,
    below_api_view,
    carriers,
    is_unawaited,
    mark_of,
    view_class,
)
from ..http.views import route_of
from .catalogue import and_more, finding, shown, type_named
from .middleware import guards_every_view
from .policies import policy_errors
from .settings import check_settings
from .urlconf import are_exempt, has_operations, is_rest, name_of, open_handlers, policies, routes, views


def check_routes(**_: Any) -> list[CheckMessage]:
    """Check every view of the URLconf, once the settings are in order."""
    if check_settings():
        return []
    under_middleware = guards_every_view()
    found: dict[str, CheckMessage] = {}
    above: defaultdict[str, list[str]] = defaultdict(list)
    for callback, leading in views():
        if has_operations(callback):
            continue  # whose kind has a check of them
        path = leading[0].path
        view = f"{name_of(callback)} ({path})"
        if (layer := _outside_transactions(callback)) is not None:
            above[layer].append(view)
        messages = [*own_problems(callback, view)]
        if under_middleware and not route_of(callback, "").exempt and not are_exempt(leading):
            messages += middleware_problems(callback, view)
        for message in messages:
            found.setdefault(f"{message.id} {message.msg.replace(path, '')}", message)  # report a class once
    if under_middleware:
        for message in _exemptions():
            found[message.msg] = message
    outside = [finding("W135", layer=layer, view=named[0], others=and_more(named)) for layer, named in above.items()]
    return [*found.values(), *outside]


def _exemptions() -> Iterator[CheckMessage]:
    """Find entries of EXEMPT that match no route."""
    every = list(routes())
    close = next((f"namespace:{route.namespaces[0]}" for route in every if route.namespaces), "path:/webhooks/")
    for exemption in exemptions():
        if all(route.exempt_by(exemption) is False for route in every):
            yield finding("W071", entry=shown(exemption.text), close=close)


def own_problems(callback: Any, view: str) -> Iterator[CheckMessage]:
    """Find problems of a view's own guards."""
    if view_class(callback) is not None:
        yield from _class(callback, view)
    code = None if not iscoroutinefunction(callback) else "E071" if is_rest(callback) else "E030"
    for policy in policies(callback):
        yield from policy_errors(view, policy, coroutine=code)
    if any(refuses_its_clients(callback, policy) for policy in policies(callback)):
        yield finding("W140", view=view)
    yield from refusals(callback, view)


def operation_problems(operation: Any, name: str) -> Iterator[CheckMessage]:
    """Find what is wrong with the policy of an operation below a view."""
    if isinstance(policy := getattr(operation, POLICY, None), Policy):
        yield from policy_errors(name, policy, coroutine="E030" if operation.is_async else None)


def refuses_its_clients(callback: Any, policy: Policy) -> bool:
    """Is a DRF view open to clients without a user, although its policy refuses their keys?"""
    if hasattr(callback, "__wrapped__"):  # by a decorator that may require a user
        return False
    if not is_rest(callback) or conf.field(policy, "scope") is not None or conf.field(policy, "anonymous") != "refuse":
        return False
    from rest_framework.permissions import AllowAny  # not above: needs DRF, which such a class has loaded
    from rest_framework.views import APIView

    cls: Any = view_class(callback)
    asked = getattr(callback, "initkwargs", {}).get("permission_classes", cls.permission_classes)
    return cls.get_permissions is APIView.get_permissions and all(each is AllowAny for each in asked)


def _in_atomic_requests(callback: Any) -> bool:
    left = non_atomic_aliases(callback)
    return any(settings["ATOMIC_REQUESTS"] and alias not in left for alias, settings in connections.settings.items())


def _outside_transactions(callback: Any) -> str | None:
    """Name the decorator above ours, if any, that our view has taken out of ATOMIC_REQUESTS. Django's write nothing."""
    if is_rest(callback) or not isinstance(excluded_aliases(callback), AllAliases) or not _in_atomic_requests(callback):
        return None
    for layer in layers_of(callback):
        module = getattr(layer, "__globals__", {}).get("__name__", "")
        if module.startswith("django_idempotency."):
            return None
        if module and not module.startswith(("django.", "contextlib")):  # such as atomic(view)
            return name_of_code(module, layer.__code__)
    return None


def refusals(callback: Any, view: str) -> Iterator[CheckMessage]:
    """Find our decorators that their class does not see: a request to such a handler raises."""
    for refusal in {refusal for each in carriers(callback) if (refusal := mark_of(each, REFUSAL))}:
        yield finding("E069", view=view, problem=refusal)


# ---------------------------------------------------------------------------------------------------------- classes


def _class(callback: Any, view: str) -> Iterator[CheckMessage]:
    cls = view_class(callback)
    assert cls is not None
    if hasattr(cls, "get_idempotency_policy"):
        yield from _mixin(callback, cls, view)
    if is_rest(callback) and is_unawaited(cls, getattr(callback, "actions", None)) and _guards_inside(callback):
        yield finding("E067", view=view)
    if any(s["ATOMIC_REQUESTS"] for s in connections.settings.values()) and any(
        hasattr(below_api_view(each), POLICY) for each in carriers(callback)
    ):
        yield finding("E034", view=view)
    if is_rest(callback) and not iscoroutinefunction(callback):
        yield from _inside_djangos(callback, cls, view)


def _inside_djangos(callback: Any, cls: type[Any], view: str) -> Iterator[CheckMessage]:
    """Find a guarded DRF view whose transaction is opened by Django, because the view is wrapped."""
    from ..rest_framework.mixins import GuardedView  # not above: needs DRF, which such a class has loaded

    guarded = hasattr(cls, "get_idempotency_policy") or hasattr(callback, POLICY)
    if not guarded or isinstance(callback, GuardedView):
        return
    if _in_atomic_requests(callback):
        leases = any(conf.field(policy, "guarantee") == Guarantee.LEASE for policy in policies(callback))
        yield finding("E072" if leases else "W076", view=view)


def _guards_inside(callback: Any) -> bool:
    """Does a DRF class have the mixin, or `@idempotent()` below `@api_view`?"""
    cls = view_class(callback)
    return hasattr(cls, "get_idempotency_policy") or any(hasattr(each, POLICY) for each in carriers(callback))


def _mixin(callback: Any, cls: type[Any], view: str) -> Iterator[CheckMessage]:
    from ..rest_framework import IdempotentViewMixin  # not above: needs DRF, which a class with the mixin has loaded

    if not issubclass(cls, IdempotentViewMixin):
        return
    for base in cls.__mro__[: cls.__mro__.index(IdempotentViewMixin)]:
        # DRF's classes do not call super() in these two; a project's own may.
        if base.__module__.partition(".")[0] == "rest_framework" and {"dispatch", "as_view"} & vars(base).keys():
            yield finding("E031", view=view, other=base.__name__, name=cls.__name__)
            return
    if not hasattr(cls, "initialize_request"):
        yield finding("E032", view=view)
    policy = getattr(callback, "initkwargs", {}).get("idempotency", cls.idempotency)
    decides = cls.get_idempotency_policy is not IdempotentViewMixin.get_idempotency_policy
    if not isinstance(policy, Policy) and not hasattr(policy, "__get__") and not decides:
        yield finding("E038", view=view, found=type_named(policy))


# ---------------------------------------------------------------------------------------------- under the middleware


def middleware_problems(callback: Any, view: str) -> Iterator[CheckMessage]:
    """Find what the middleware cannot guard."""
    known = [route_of(callback, name) for name in open_handlers(callback)]
    if all(each.guards_itself or each.exempt for each in known):
        return
    cls, kind = view_class(callback), kind_of(callback)
    if kind is not None and kind.left is not None:
        yield from kind.problems(view)
    elif cls is not None and is_rest(callback):
        if iscoroutinefunction(callback):
            yield finding("E071", view=view)
            return
        from ..rest_framework.view_adapter import is_undecorated  # not above: needs DRF, which such a class has loaded

        if not is_undecorated(callback):
            yield finding("E033", view=view, name=cls.__name__)
    elif iscoroutinefunction(callback) and conf.get("GUARANTEE") == Guarantee.ATOMIC:
        yield finding("E030", view=view)
