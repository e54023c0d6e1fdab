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


def is_exempt(callback: Any) -> bool:
    """Has `@idempotency_exempt` been put on the view or on its class?"""
    return hasattr(callback, EXEMPT) or hasattr(view_class(callback), EXEMPT)


def has_own_door(callback: Any, method: str) -> bool:
    """Does the view guard this method itself, by the mixin or the decorator?"""
    if hasattr(callback, POLICY):
        return True
    cls = view_class(callback)
    if hasattr(cls, "get_idempotency_policy"):
        return True
    handler = getattr(cls, method.lower(), None)
    return hasattr(handler, POLICY) or hasattr(below_api_view(handler), POLICY)


def has_handler(callback: Any, method: str) -> bool:
    """Has the class behind an `as_view()` a handler for a method? DRF's viewsets map theirs to actions."""
    cls, name = view_class(callback), method.lower()
    return name in (getattr(callback, "actions", None) or ()) or hasattr(cls, name)


def below_api_view(handler: Any) -> Any:
    """Return the function that `@api_view` has wrapped into a handler, or `None`."""
    code = getattr(handler, "__code__", None)
    if code is None or "func" not in code.co_freevars:
        return None
    return handler.__closure__[code.co_freevars.index("func")].cell_contents
