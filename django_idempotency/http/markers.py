"""The one attribute that entry points set on a view, so that each recognizes the others, and where
views carry it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.views import View

from ..core.policy import Policy
from .layers import closed_over, layers_of

#: The name of the attribute.
MARK = "idempotency_mark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What is noted on a view."""

    #: The policy by which it guards itself. The middleware leaves such a view alone.
    policy: Policy | None = None
    #: Is the decorator on this very method, and not on its class?
    placed: bool = False
    #: Does the middleware leave it unguarded?
    exempt: bool = False
    #: Why a decorated handler cannot be guarded: found when its class was made, raised when it is
    #: used.
    refusal: str = ""


UNMARKED = Mark()
UNSAFE_HANDLERS = ("post", "put", "patch", "delete")


def mark(view: Any, **facts: Any) -> None:
    """Note facts on a view, beside those that are noted on it.

    Raises `AttributeError` if it takes no attributes.
    """
    setattr(view, MARK, replace(mark_of(view), **facts))


def mark_of(view: Any) -> Mark:
    """Return what is noted on a view. A proxy may have every attribute."""
    found = getattr(view, MARK, UNMARKED)
    return found if isinstance(found, Mark) else UNMARKED


def view_class(callback: Any) -> Any:
    """Return the class behind an `as_view()`, Django's or DRF's; `None` for other objects with such
    an attribute.
    """
    return rest_class(callback) or _class_at(callback, "view_class")


def rest_class(callback: Any) -> Any:
    """Return the class behind an `as_view()` of DRF, or `None`."""
    return _class_at(callback, "cls")


def _class_at(callback: Any, name: str) -> Any:
    found = getattr(callback, name, None)
    return found if inspect.isclass(found) and issubclass(found, View) else None


def handler_of(callback: Any, method: str) -> Any:
    """Return a class's handler of a method, or `None`. DRF's viewsets map methods to actions."""
    cls = view_class(callback)
    name = method.lower()
    if cls is None or name not in cls.http_method_names:
        return None
    actions = getattr(callback, "actions", None) or {}
    return attribute_of(cls, actions.get(name, name))


def attribute_of(cls: Any, name: str) -> Any:
    """Return a handler of a class, or `None`.

    Finds also one that cannot be guarded, which raises when accessed.
    """
    try:
        return getattr(cls, name, None)
    except ImproperlyConfigured:
        return inspect.getattr_static(cls, name)


def carriers(callback: Any) -> list[Any]:
    """Return what may carry our marks: a view, its handlers of unsafe methods, the functions below
    `@api_view`.
    """
    handlers = [
        handler for name in UNSAFE_HANDLERS if (handler := handler_of(callback, name)) is not None
    ]
    return [
        callback,
        *handlers,
        *(below for each in handlers if (below := below_api_view(each)) is not None),
    ]


def is_unawaited(cls: Any, actions: dict[str, str] | None = None) -> bool:
    """Does a REST framework class have an async handler of an unsafe method, which only adrf
    awaits?
    """
    if hasattr(cls, "async_dispatch"):
        return False
    names = [(actions or {}).get(name, name) for name in UNSAFE_HANDLERS]
    return any(iscoroutinefunction(attribute_of(cls, name)) for name in names)


def below_api_view(handler: Any) -> Any:
    """Return the function that `@api_view` has wrapped into a handler, or `None`."""
    return closed_over(handler).get("func")


def allowed_handlers(callback: Any) -> list[str]:
    """Return the unsafe methods, as handlers are named, that `require_http_methods` and similar
    decorators of a function allow.
    """
    for layer in layers_of(callback):
        methods = closed_over(layer).get("request_method_list")
        if methods is not None:
            return [name for name in UNSAFE_HANDLERS if name.upper() in methods]
    return list(UNSAFE_HANDLERS)


def decorated_by(cls: type[Any]) -> Policy | None:
    """Return the policy of the `@idempotent()` that is on this class, and not on a base of it."""
    hook = vars(cls).get("__init_subclass__")
    policy = mark_of(getattr(hook, "__func__", None)).policy
    if policy is not None:
        return policy
    attribute = vars(cls).get("idempotency")  # of a decorated class of REST framework
    return attribute if isinstance(attribute, Policy) else None


def own_methods(cls: type[Any], name: str) -> Iterator[tuple[type[Any], Any]]:
    """Yield a view's classes that have a method of their own, neither Django's nor ours, and that
    without its decorators.
    """
    for base in cls.__mro__[: cls.__mro__.index(View)]:
        found = vars(base).get(name)
        if found is not None:
            method = inspect.unwrap(getattr(found, "__func__", found))
            if not str(getattr(method, "__module__", "")).startswith("django."):
                yield base, method


def names_used(cls: type[Any], method: Any) -> set[str]:
    """Return the names that a method uses, with those of the methods of its class and of the
    functions it has closed over.
    """
    found = set[str]()
    seen = set[int]()
    waiting = [method]
    while waiting:
        function = inspect.unwrap(waiting.pop())
        if id(function) in seen:
            continue
        seen.add(id(function))
        new = set(_names(getattr(function, "__code__", None))) - found
        found |= new
        members = [getattr(cls, name, None) for name in new - {*View.http_method_names}]
        further = [*members, *closed_over(function).values()]
        waiting += [
            each
            for each in further
            if inspect.isfunction(each) and each.__module__ != View.__module__
        ]
    return found


def _names(code: Any) -> Iterator[str]:
    """Yield the names that a function uses, and those inside of it."""
    if code is not None:
        yield from code.co_names
        for inner in code.co_consts:
            yield from _names(inner) if inspect.iscode(inner) else ()


def next_method(cls: type[Any], name: str) -> Callable[..., Any]:
    """Return a class's method to wrap.

    An inherited one is looked up at each call: a subclass may insert a mixin such as
    LoginRequiredMixin before it.
    """
    found = getattr(cls, name)
    function: Callable[..., Any] = getattr(found, "__func__", found)  # as_view's
    if name in vars(cls):
        return function

    @functools.wraps(function)
    def inherited(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(cls, self), name)(*args, **kwargs)

    return markcoroutinefunction(inherited) if iscoroutinefunction(function) else inherited
