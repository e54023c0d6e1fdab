"""Every route of the URLconf as Django resolves it, and what is known about its view."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RegexPattern
from django.views import View

from ..core.policy import Policy
from ..http.exemptions import Pattern, exemptions, within
from ..http.kinds import kind_of, operations_of
from ..http.layers import closed_over, layers_of
from ..http.markers import (
    UNSAFE_HANDLERS,
    allowed_handlers,
    carriers,
    handler_of,
    mark_of,
    own_methods,
    view_class,
)
from ..http.plan import EVERY_VIEW, plan_of
from ..http.views import own_policy, route_of
from ..stores.check_messages import shown


@dataclass(frozen=True, slots=True)
class Route:
    """One pattern of the URLconf: its path from the root, the namespaces around it, its own name,
    and its view.
    """

    path: str
    namespaces: tuple[str, ...]
    name: str | None
    callback: Any

    @property
    def view_name(self) -> str:
        """The name for reverse(), with its namespaces."""
        return ":".join([*self.namespaces, self.name or ""])

    def covered_by(self, pattern: Pattern) -> bool | None:
        """Does a pattern cover every request to this route? `None`: some requests, or unknown."""
        match pattern.kind:
            case "name":
                return bool(self.view_name == pattern.value)
            case "namespace":
                return pattern.has_namespace(self.namespaces)
            case "module":
                return pattern.has_module(self.callback)
            case "path":
                return self._is_below(pattern.value)
            case "regex" if self.head == self.path:
                return pattern.test.search(self.path) is not None
        return None

    def by_middleware(self) -> tuple[Policy, str, list[str]]:
        """Return the policy by which the middleware guards this route, the entry of ROUTES that it
        is from, "" if it is the settings', and the entries that may cover some of its requests
        before that.
        """
        perhaps: list[str] = []
        for pattern, policy in plan_of(EVERY_VIEW).routed:
            if covers := self.covered_by(pattern):
                return policy, pattern.text, perhaps
            perhaps += [pattern.text] if covers is None else []
        return EVERY_VIEW, "", perhaps

    def _is_below(self, path: str) -> bool | None:
        if within(self.head, path) and (
            self.head == self.path or self.head.startswith(f"{path.rstrip('/')}/")
        ):
            return True
        may = self.head != self.path and f"{path.rstrip('/')}/".startswith(
            self.head.rpartition("/")[0]
        )
        return None if may else False

    @property
    def head(self) -> str:
        """The constant beginning of the path."""
        return re.split(r"[<\\^$.|?*+()\[\]{}]", self.path, maxsplit=1)[0]


def routes() -> Iterator[Route]:
    """Yield every route of ROOT_URLCONF, in the order in which Django tries them.

    What cannot be imported is left out: Django reports it. A URLconf that includes itself is
    entered once.
    """
    if getattr(settings, "ROOT_URLCONF", None):
        yield from _below(get_resolver(), "/", (), ())


def _below(
    resolver: URLResolver, prefix: str, namespaces: tuple[str, ...], around: tuple[Any, ...]
) -> Iterator[Route]:
    name = resolver.urlconf_name
    identity = name if isinstance(name, str) else id(name)
    if identity in around:
        return
    for pattern in _patterns(resolver):
        path = prefix + _part(pattern)
        if isinstance(pattern, URLResolver):
            inner = (*namespaces, pattern.namespace) if pattern.namespace else namespaces
            yield from _below(pattern, path, inner, (*around, identity))
        elif isinstance(pattern, URLPattern):
            yield Route(path, namespaces, pattern.name, pattern.callback)


def _part(pattern: Any) -> str:
    """Return a pattern's part of the path.

    A regular expression is shown as it is, without its anchors.
    """
    piece = str(getattr(pattern, "pattern", ""))
    regex = isinstance(getattr(pattern, "pattern", None), RegexPattern)
    return piece.removeprefix("^").removesuffix("$").removesuffix(r"\Z") if regex else piece


def views() -> list[tuple[Any, list[Route]]]:
    """Return every callback once, with the routes that lead to it."""
    found: dict[int, tuple[Any, list[Route]]] = {}
    for route in routes():
        found.setdefault(id(route.callback), (route.callback, []))[1].append(route)
    return list(found.values())


def are_exempt(leading: list[Route]) -> bool:
    """Does EXEMPT cover every request to these routes?"""
    entries = exemptions()
    return all(any(route.covered_by(entry) for entry in entries) for route in leading)


def _patterns(resolver: URLResolver) -> list[Any]:
    try:
        return list(resolver.url_patterns)
    except Exception:  # noqa: BLE001 - importing runs the project's code
        return []


def is_rest(callback: Any) -> bool:
    """Is it a view of REST framework?"""
    return hasattr(view_class(callback), "initialize_request")


def is_of_admin(callback: Any) -> bool:
    """Is it a view of Django's admin? People use it, and where it is, is not for everyone.

    Its sites and model admins are around their views: as their owner, or in the closure of
    `admin_view()`.
    """
    for layer in layers_of(callback):
        for owner in (getattr(layer, "__self__", None), *closed_over(layer).values()):
            if any(
                cls.__module__.startswith("django.contrib.admin.") for cls in type(owner).__mro__
            ):
                return True
    return False


def name_of(callback: Any) -> str:
    """Name a view, or the class behind it."""
    view = view_class(callback) or callback
    name = getattr(view, "__qualname__", None)
    if inspect.isclass(view) and not view.__qualname__.endswith(view.__name__):
        name = view.__name__  # of @api_view: the name of the function
    return f"{view.__module__}.{name}" if isinstance(name, str) else shown(view)


def has_operations(callback: Any) -> bool:
    """Is it of a kind whose views are operations, each with marks of its own?"""
    return bool(operations_of(callback))


def open_handlers(callback: Any) -> list[str]:
    """Return the unsafe methods that a view may handle: all, unless restricted."""
    handlers = kind_of(callback).handlers
    if handlers:
        return list(handlers)
    cls = view_class(callback)
    if cls is not None:
        found = [name for name in UNSAFE_HANDLERS if handler_of(callback, name) is not None]
        return list(UNSAFE_HANDLERS) if _responds_in_dispatch(cls) else found
    return allowed_handlers(callback)


def _responds_in_dispatch(cls: type[View]) -> bool:
    """Does a class respond to every method in its `dispatch()`, as views of GraphQL and of JSON-RPC
    do?
    """
    # REST framework's: a ViewSet's handlers are those of its callback.
    if hasattr(cls, "initialize_request"):
        return False
    handled = any(hasattr(cls, name) for name in View.http_method_names if name != "options")
    return not handled and next(own_methods(cls, "dispatch"), None) is not None


def policies(callback: Any) -> list[Policy]:
    """Return the policies of a view's own guards.

    What `get_idempotency_policy()` decides per request is unknown.
    """
    found = [mark_of(view).policy for view in carriers(callback)]
    if hasattr(view_class(callback), "get_idempotency_policy"):
        found += [
            own_policy(callback, name)
            for name in open_handlers(callback)
            if not route_of(callback, name).exempt
        ]
    unique = {id(policy): policy for policy in found if isinstance(policy, Policy)}
    return list(unique.values())
