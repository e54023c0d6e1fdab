"""The layers before a view under the middleware: which checks can be repeated, and which cannot.

A layer is followed only if its code is known, to what it calls: `__wrapped__` is merely a claim about that.
Types are compared by `type()`, and only a function's own `__code__` counts: a proxy returns those of its target.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType, MemberDescriptorType, MethodType, MethodWrapperType, WrapperDescriptorType
from typing import Any

from django.apps import apps
from django.contrib.auth.decorators import user_passes_test
from django.db.transaction import Atomic
from django.http import HttpRequest
from django.utils.decorators import method_decorator
from django.views import View

from .layers import Origin, cells_of, name_of_code, origin_of, untraced
from .markers import rest_class

#: Modules of Django whose wrappers check no access. Their middlewares are examined separately.
_HARMLESS = ("django.views.decorators", "django.utils.decorators", "django.contrib.auth.decorators")
#: Our modules whose wrappers check no access: around the handlers and the dispatch of a decorated class.
_OURS = (
    "django_idempotency.decorators.views",
    "django_idempotency.decorators.classes",
    "django_idempotency.http.unguarded",
    "django_idempotency.http.markers",
)
_ADMIN = ("django.contrib.admin.sites", "django.contrib.admin.options")
#: The names by which Django's wrappers refer to the view.
_CALLS = ("view_func", "func", "view", "method", "dispatch")
#: Functions that an admin site stores: they act on rows that a view has chosen.
_ACTIONS = ("_actions", "_global_actions")
#: Containers other than dictionaries.
_COLLECTIONS = (list, tuple, set, frozenset, deque)

#: A check before a replay: may this request pass?
Test = Callable[[HttpRequest], Any]


class Unfollowed(Exception):
    """A layer before a view has a check that cannot be repeated."""


@dataclass(slots=True)
class Path:
    """The access checks before a view."""

    #: Tests of the user, each from a `user_passes_test`.
    of_user: list[Callable[[Any], Any]] = field(default_factory=list)
    #: Tests of the request.
    of_request: list[Test] = field(default_factory=list)
    #: The class behind an `as_view()`, and its arguments.
    cls: type[View] | None = None
    initkwargs: dict[str, Any] = field(default_factory=dict)


def path_to(callback: Any, method: str) -> Path:
    """Follow a callback to its view. Raises `Unfollowed` for an opaque layer."""
    path = Path()
    view = _innermost(callback, path)
    if (origin := origin_of(view)) is not None and origin == _view_origin():
        cells = cells_of(view)
        path.cls, path.initkwargs = cells["cls"], cells["initkwargs"]
        _follow_class(path.cls, method, path)
    return path


def unfollowed(callback: Any, method: str) -> str | None:
    """Return the layer before a view whose check cannot be repeated, or `None`. A view of REST framework checks access itself."""
    if rest_class(callback) is not None:
        return None
    try:
        path_to(callback, method)
    except Unfollowed as error:
        return str(error)
    return None


def _follow_class(cls: type[View], method: str, path: Path) -> None:
    for base in cls.__mro__:  # each dispatch calls that of its super()
        if (dispatch := vars(base).get("dispatch")) is not None and not _leads_on(_innermost(dispatch, path)):
            raise Unfollowed(f"{base.__module__}.{base.__qualname__}.dispatch()")
    if (handler := getattr(cls, method.lower(), None)) is not None:
        _innermost(handler, path)


def _leads_on(dispatch: Any) -> bool:
    """Does a `dispatch()` check nothing itself? Django's do not, nor do ours, which call that of the next base."""
    ours = getattr(dispatch, "__globals__", {}).get("__name__") in _OURS
    return dispatch in _dispatches() or (ours and dispatch.__code__.co_name == "inherited")


def _innermost(layer: Any, path: Path) -> Any:
    """Follow the calls down to the view, and collect the checks on the way."""
    layer = untraced(layer)
    while (inner := _inside(layer, path)) is not None:
        layer = untraced(inner)
    return layer


def _inside(layer: Any, path: Path) -> Any:
    """Return what a layer calls; `None`: it is the view."""
    kind = type(layer)
    if kind is functools.partial:
        _refuse_callables(
            [*layer.args, *layer.keywords.values()], "a functools.partial with a function among its arguments"
        )
        return layer.func
    if kind is MethodType:
        _refuse_owner(layer.__self__)
        return layer.__func__
    if kind is not FunctionType:  # an object that can be called
        return _call_of(layer)
    function: FunctionType = layer
    code = function.__code__
    if origin_of(function) == _view_origin():
        return None
    module = function.__globals__.get("__name__", "")
    if code.co_name == "<lambda>":
        raise Unfollowed(name_of_code(module, code))
    if not _is_known(layer, module, path):
        if hasattr(layer, "__wrapped__"):
            raise Unfollowed(name_of_code(module, code))
        _refuse_callables(_held_by_function(function), name_of_code(module, code))
        return None
    cells = cells_of(layer)
    return next((cells[name] for name in _CALLS if name in cells), None)


def _is_known(layer: Any, module: str, path: Path) -> bool:
    """Is the code of a layer known? Its checks are added to the path."""
    origin, cells = origin_of(layer), cells_of(layer)
    if module in _OURS:
        return True
    if origin in _asking():
        path.of_user.append(cells["test_func"])
    elif origin == _method_wrapper():
        for decorate in cells["decorators"]:  # as method_decorator does at each call
            _innermost(decorate(_view), path)
    elif module in _ADMIN and {"self", "view"} <= cells.keys():
        site = getattr(cells["self"], "admin_site", cells["self"])
        path.of_request.append(site.has_permission)
    elif module == "contextlib":
        return isinstance(cells.get("self"), Atomic)
    else:
        # decorator_from_middleware()'s is in the functions that it calls.
        asks = cells_of(cells["_pre_process_request"]) if "_pre_process_request" in cells else {}
        theirs = "middleware" in asks and not type(asks["middleware"]).__module__.startswith("django.")
        return not theirs and module.startswith(_HARMLESS) and any(name in cells for name in _CALLS)
    return True


def _call_of(layer: Any) -> Any:
    """Return the `__call__` of an object if it is Python code and the object holds nothing that it may call."""
    kind = type(layer)
    call = kind.__call__
    if hasattr(layer, "__wrapped__") or type(call) in (WrapperDescriptorType, MethodWrapperType):
        raise Unfollowed(_name_of(kind))
    _refuse_callables(_held_by_object(layer), _name_of(kind))
    return call


def _refuse_owner(owner: Any) -> None:
    """Refuse the object of a bound method if it may call another view. A class holds nothing of its own."""
    kind = type(owner)
    if issubclass(kind, type):
        return
    if hasattr(kind, "as_view") or hasattr(owner, "__wrapped__"):
        raise Unfollowed(_name_of(kind))
    _refuse_callables(_held_by_object(owner), _name_of(kind))


def _refuse_callables(values: Iterable[Any], name: str) -> None:
    """Refuse a layer that holds a view, or a function that may be one, since it may call that."""
    if any(_may_be_view(each) for value in values for each in (value, *_contained(value))):
        raise Unfollowed(name)


def _may_be_view(value: Any) -> bool:
    """Can this be called with a request? A class only if it makes views, or objects that can be called."""
    if issubclass(type(value), type):
        return hasattr(value, "as_view") or any("__call__" in vars(base) for base in value.__mro__)
    return callable(value)


def _contained(value: Any) -> Iterable[Any]:
    """Return what a plain collection holds, one level deep."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, _COLLECTIONS) else ()


def _held_by_object(holder: Any) -> Iterator[Any]:
    """Yield the values of an object's attributes and slots."""
    site = any(base.__module__ == _ADMIN[0] for base in type(holder).__mro__)
    for name, value in getattr(holder, "__dict__", {}).items():
        if not (site and name in _ACTIONS):
            yield value
    for base in type(holder).__mro__:
        for slot in vars(base).values():
            if type(slot) is MemberDescriptorType:
                try:
                    yield slot.__get__(holder)
                except AttributeError:  # not set yet
                    continue


def _held_by_function(function: FunctionType) -> Iterator[Any]:
    """Yield what a function has closed over, except the class that `super()` needs, and its defaults."""
    yield from (value for name, value in cells_of(function).items() if name != "__class__")
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _view(request: HttpRequest) -> None: ...


async def _async_view(request: HttpRequest) -> None: ...


@lru_cache(maxsize=1)
def _view_origin() -> Origin | None:
    """Return the origin of what Django's `as_view()` returns."""
    return origin_of(untraced(View.as_view()))


@lru_cache(maxsize=1)
def _asking() -> frozenset[Origin | None]:
    """Return the origin of what `user_passes_test` returns, for a sync view and for an async one."""
    decorate = user_passes_test(bool)
    return frozenset(origin_of(decorate(each)) for each in (_view, _async_view))  # type: ignore[type-var]


@lru_cache(maxsize=1)
def _method_wrapper() -> Origin | None:
    """Return the origin of what `method_decorator` returns."""
    return origin_of(method_decorator(user_passes_test(bool))(_view))


def _dispatches() -> tuple[Any, ...]:
    """Return the `dispatch()` methods of Django that check nothing, and of its mixins, whose checks are repeated."""
    if not apps.is_installed("django.contrib.auth"):
        return (untraced(View.dispatch),)
    from django.contrib.auth import mixins  # loads its models

    asking = (mixins.LoginRequiredMixin, mixins.PermissionRequiredMixin, mixins.UserPassesTestMixin)
    return tuple(untraced(cls.dispatch) for cls in (View, *asking))
