"""Every view of the URLconf, each once, and what can be proven about it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.urls import URLPattern, URLResolver, get_resolver

from ..core.policy import SAFE_METHODS, Policy
from ..marks import POLICY, UNSAFE_HANDLERS, below_api_view, handler_of, view_class
from .catalogue import shown


def callbacks() -> Iterator[Any]:
    """Yield every callback of ROOT_URLCONF once. What cannot be imported is left out: Django says so."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return
    pending, conf_seen, seen = [get_resolver()], set(), set()
    while pending:
        resolver = pending.pop()
        name = resolver.urlconf_name
        if (identity := name if isinstance(name, str) else id(name)) in conf_seen:
            continue  # included twice, or by itself
        conf_seen.add(identity)
        for pattern in _patterns(resolver):
            if isinstance(pattern, URLResolver):
                pending.append(pattern)
            elif isinstance(pattern, URLPattern) and id(pattern.callback) not in seen:
                seen.add(id(pattern.callback))
                yield pattern.callback


def _patterns(resolver: URLResolver) -> list[Any]:
    try:
        return list(resolver.url_patterns)
    except Exception:  # noqa: BLE001 - importing runs the project's code
        return []


def class_of(callback: Any) -> type[Any] | None:
    """Return the class behind an `as_view()`."""
    cls = view_class(callback)
    return cls if inspect.isclass(cls) else None


def name_of(callback: Any) -> str:
    """Name a view, or the class behind it."""
    view = class_of(callback) or callback
    name = getattr(view, "__qualname__", None)
    return f"{view.__module__}.{name}" if isinstance(name, str) else shown(view)


def open_handlers(callback: Any) -> list[str]:
    """Return the unsafe methods that a view may answer: all, if nothing says otherwise."""
    if class_of(callback) is not None:
        return [name for name in UNSAFE_HANDLERS if handler_of(callback, name) is not None]
    allowed = _required_methods(callback)
    return list(UNSAFE_HANDLERS) if allowed is None or allowed - SAFE_METHODS else []


def _required_methods(callback: Any) -> set[str] | None:
    """Return what `require_http_methods` and its like allow, from the closure that remembers it."""
    while callback is not None:
        code = getattr(callback, "__code__", None)
        if code is not None and "request_method_list" in code.co_freevars:
            return set(callback.__closure__[code.co_freevars.index("request_method_list")].cell_contents)
        callback = getattr(callback, "__wrapped__", None)
    return None


def policies(callback: Any) -> list[Policy]:
    """Return the policies of a view's own doors. What `get_idempotency_policy()` decides for each request is unknown."""
    cls = class_of(callback)
    handlers = [getattr(cls, name, None) for name in UNSAFE_HANDLERS]
    found = [getattr(view, POLICY, None) for view in (callback, *handlers, *map(below_api_view, handlers))]
    if not overrides_policy(cls):
        found.append(getattr(cls, "idempotency", None))
    unique = {id(policy): policy for policy in found if isinstance(policy, Policy)}
    return list(unique.values())


def overrides_policy(cls: type[Any] | None) -> bool:
    """Does a class choose its policy for each request?"""
    method = getattr(cls, "get_idempotency_policy", None)
    return method is not None and getattr(method, "__module__", "").partition(".")[0] != "django_idempotency"
