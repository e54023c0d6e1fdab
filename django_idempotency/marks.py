"""What the doors leave on a view, so that each finds the others."""

from __future__ import annotations

from typing import Any

#: The policy of a view's own door. The middleware leaves such a view alone.
POLICY = "idempotency_policy"
#: No middleware guards this view.
EXEMPT = "idempotency_exempt"

UNSAFE_HANDLERS = ("post", "put", "patch", "delete")


def view_class(callback: Any) -> Any:
    """Return the class behind an `as_view()`, Django's or DRF's."""
    return getattr(callback, "cls", None) or getattr(callback, "view_class", None)


def handler_of(callback: Any, method: str) -> Any:
    """Return what a class handles a method with, or `None`. DRF's viewsets map methods to actions."""
    cls, name = view_class(callback), method.lower()
    if cls is None or name not in cls.http_method_names:
        return None
    actions = getattr(callback, "actions", None) or {}
    return getattr(cls, actions.get(name, name), None)


def is_exempt(callback: Any, method: str = "") -> bool:
    """Has `@idempotency_exempt` been put on the view, on its class, or on the handler of this method?"""
    handler = handler_of(callback, method)
    views = (callback, view_class(callback), handler, below_api_view(handler))
    return any(hasattr(view, EXEMPT) for view in views)


def has_own_door(callback: Any, method: str) -> bool:
    """Does the view guard this method itself, by the mixin or the decorator?"""
    if hasattr(callback, POLICY):
        return True
    cls = view_class(callback)
    if hasattr(cls, "get_idempotency_policy"):
        return True
    handler = handler_of(callback, method)
    return hasattr(handler, POLICY) or hasattr(below_api_view(handler), POLICY)


def below_api_view(handler: Any) -> Any:
    """Return the function that `@api_view` has wrapped into a handler, or `None`."""
    code = getattr(handler, "__code__", None)
    if code is None or "func" not in code.co_freevars:
        return None
    return handler.__closure__[code.co_freevars.index("func")].cell_contents
