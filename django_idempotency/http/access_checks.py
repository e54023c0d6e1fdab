"""Finds what stands before a view that the middleware guards, and asks whether a request may pass.

Known are Django's access decorators and mixins, and what checks nothing. Behind anything else a
replay is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from inspect import getattr_static
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.core.exceptions import PermissionDenied
from django.db.transaction import Atomic
from django.http import Http404, HttpRequest
from django.views import View

from .layers import closed_over, described, held_by, is_plain, is_view_of_class, place_of
from .markers import attribute_of

_MIXINS = "django.contrib.auth.mixins"
#: Modules of decorators that check no access: Django's, and ours around a class.
_HARMLESS = ("django.views.decorators.", "django_idempotency.http.unguarded")
#: What makes the view of a class do something else than its methods say.
_OF_INSTANCES = frozenset({"__init__", "__new__", "__getattribute__", "__getattr__"})


class _Unknown(Exception):
    """A layer before a view is not known."""


@dataclass(slots=True)
class Before:
    """What stands before a view, for requests by one method."""

    method: str = ""
    #: The layer that is not known; "": all are.
    unknown: str = ""
    #: What decorators of Django's ask of a user.
    tests: list[Callable[[Any], Any]] = field(default_factory=list)
    #: Is the view never called by this method?
    is_closed: bool = False
    #: Makes the view of a class, if that asks; the names of its access mixins.
    make: Callable[[], Any] | None = None
    mixins: frozenset[str] = frozenset()


def find_before(callback: Any, method: str) -> Before:
    """Return what stands before a view."""
    before = Before(method)
    try:
        view = _follow(callback, before)
        if is_view_of_class(view):
            _follow_class(**closed_over(view), before=before)
    except _Unknown as error:
        before.unknown = str(error)
    return before


def _follow(layer: Any, before: Before) -> Any:
    """Return the function behind decorators of Django's, and note what those ask."""
    while not is_view_of_class(layer) and not is_plain(layer):
        module, _ = place_of(layer)
        held = closed_over(layer)
        inner = held_by(layer)
        if module == "django.contrib.auth.decorators" and "test_func" in held:
            test = held["test_func"]
            before.tests.append(async_to_sync(test) if iscoroutinefunction(test) else test)
        elif module == "django.utils.decorators" and "decorators" in held:  # method_decorator()
            for decorate in held["decorators"]:
                _follow(decorate(_like(inner)), before)
        elif module == "django.views.decorators.http" and "request_method_list" in held:
            before.is_closed |= before.method not in held["request_method_list"]
        elif module == "contextlib" and type(held.get("self")) is Atomic:
            pass  # @transaction.atomic
        elif not module.startswith(_HARMLESS):
            inner = None
        if inner is None:
            raise _Unknown(described(layer))
        layer = inner
    return layer


def _like(method: Any) -> Any:
    """Stand in for the method that `method_decorator()` decorates at each call."""

    def stub(request: HttpRequest) -> None: ...

    vars(update_wrapper(stub, method)).pop("__wrapped__")
    return stub


def _follow_class(cls: Any, initkwargs: dict[str, Any], before: Before) -> None:
    """Note the access mixins of a class, and what the decorators of its methods ask."""
    for base in cls.__mro__:  # each dispatch calls that of its super()
        if base not in (View, object) and not _OF_INSTANCES.isdisjoint(vars(base)):
            raise _Unknown(f"{base.__module__}.{base.__qualname__}, whose instances differ,")
        dispatch = vars(base).get("dispatch", View.dispatch)
        module, _ = place_of(_follow(dispatch, before))
        if module not in ("django.views.generic.base", _MIXINS):
            raise _Unknown(f"{base.__module__}.{base.__qualname__}.dispatch()")
    handler = attribute_of(cls, before.method.lower())
    before.is_closed |= handler is None
    if handler is not None:
        _follow(getattr_static(cls, before.method.lower()), before)
    before.mixins = frozenset(each.__name__ for each in cls.__mro__ if each.__module__ == _MIXINS)
    if before.mixins or cls.setup is not View.setup:
        before.make = partial(cls, **initkwargs)


def may_pass(before: Before, request: Any, args: Any, kwargs: Any) -> bool:
    """Does what stands before a view let a request pass? Its method is not asked about."""
    mixins = before.mixins
    try:
        if not all(test(request.user) for test in before.tests):
            return False
        if before.make is None:
            return True
        view = before.make()
        view.setup(request, *args, **kwargs)
        # What setup() has put before the handler is not known. Without a login the key may be
        # another principal's: `scopes.before_user`.
        return (
            {"dispatch", before.method.lower()}.isdisjoint(vars(view))
            and ("LoginRequiredMixin" not in mixins or request.user.is_authenticated)
            and ("PermissionRequiredMixin" not in mixins or view.has_permission())
            and ("UserPassesTestMixin" not in mixins or bool(view.get_test_func()()))
        )
    except (PermissionDenied, Http404):
        return False
