"""The decorator's door: any view, sync or async, function, method or class."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.decorators import classonlymethod
from django.views import View

from . import conf
from .core.policy import Policy
from .core.records import Guarantee
from .http.running import arun, run
from .http.selection import compile_expressions
from .marks import EXEMPT, POLICY, UNSAFE_HANDLERS
from .transactions import atomic_requests, declared_for, declared_non_atomic, leave_atomic_requests

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def idempotency_exempt(view: Decorated) -> Decorated:
    """Keep the middleware away from a view: login, signup, tokens, whose answers must not be stored."""
    setattr(view, EXEMPT, True)
    return view


def idempotent(**fields: Any) -> Callable[[Decorated], Decorated]:
    """Make a view safe to retry. Takes the fields of `Policy`.

    On a function it goes below `login_required` and its like, on a DRF function above `@api_view`; on a class it
    guards the handlers of unsafe methods. Raises `ValueError` for a field that makes no sense, and
    `ImproperlyConfigured` where it cannot keep what it promises.
    """
    policy = Policy(**fields)
    compile_expressions(policy)

    def decorate(view: Any) -> Any:
        if inspect.isclass(view):
            return _on_class(view, policy)
        _refuse_what_cannot_work(view)
        if hasattr(view, "cls"):
            from .rest_framework.lending import lend

            return lend(view, policy)
        if _is_method(view):
            return _Method(view, policy)
        return _guarded(view, policy)

    return decorate


def _refuse_what_cannot_work(view: Any) -> None:
    name = getattr(view, "__qualname__", repr(view))
    if not callable(view):
        raise ImproperlyConfigured(f"@idempotent() needs a view, not {name}.")
    if view.__module__ == "django.utils.decorators" or isinstance(view, functools.partial):
        raise ImproperlyConfigured(
            "method_decorator(idempotent()) cannot work. Put @idempotent() on the method itself."
        )
    if hasattr(view, "view_class") and not hasattr(view, "cls"):
        raise ImproperlyConfigured(
            f"@idempotent() around {view.view_class.__name__}.as_view() would answer before the class has checked "
            "anything. Put @idempotent() on the class."
        )
    _refuse_access_decorator(view, name)


def _refuse_access_decorator(view: Any, name: str) -> None:
    if hasattr(view, "login_url"):  # what user_passes_test leaves on a view
        raise ImproperlyConfigured(
            f"@idempotent() above the access decorator of {name} would answer before it. Swap the two lines; on a class, "
            "give the access decorator to its dispatch."
        )


def _guarded(view: Callable[..., Any], policy: Policy, *, on: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Guard a view. `on` is what carries `@non_atomic_requests`, if not the view: a class's dispatch."""
    if iscoroutinefunction(view):
        return _guarded_async(view, policy)

    @functools.wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        source = _request_in(args, kwargs)
        call = functools.partial(view, *args, **kwargs)
        if hasattr(source, "_request"):
            from .rest_framework.functions import run_inside

            return run_inside(source, policy, call)
        # Asked now, since a @non_atomic_requests may stand above us.
        declared = declared_non_atomic(guarded) if on is None else declared_non_atomic(on) | declared_for(source)
        return run(source, policy, call, source=source, declared=declared)

    setattr(guarded, POLICY, policy)
    return leave_atomic_requests(guarded)


def _guarded_async(view: Callable[..., Any], policy: Policy) -> Callable[..., Any]:
    if conf.field(policy, "guarantee") != Guarantee.LEASE:
        raise ImproperlyConfigured(
            f"{view.__qualname__} is async, and no transaction can cover it. "
            'Type @idempotent(guarantee="lease"), or make it a sync view.'
        )

    @functools.wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        return await arun(_request_in(args, kwargs), policy, functools.partial(view, *args, **kwargs))

    setattr(guarded, POLICY, policy)
    return markcoroutinefunction(guarded)


def _request_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Find the request of a function (first) or a method (second); Django's, or DRF's."""
    for value in (*args[:2], kwargs.get("request")):
        if isinstance(value, HttpRequest) or hasattr(value, "_request"):
            return value
    raise TypeError("@idempotent() guards views: the first argument must be a request.")


# ----------------------------------------------------------------------------------------------------------- classes


def _is_method(view: Any) -> bool:
    return "." in getattr(view, "__qualname__", "").rpartition("<locals>.")[2]


class _Method:
    """Stands for a decorated method until its class exists, and then guards it there."""

    def __init__(self, method: Callable[..., Any], policy: Policy) -> None:
        self.method = method
        self.policy = policy

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        raise ImproperlyConfigured(
            "A method_decorator above @idempotent() hides it from its class. Swap the two lines."
        )

    def __set_name__(self, owner: type[Any], name: str) -> None:
        setattr(owner, name, self.method)
        if not issubclass(owner, View) or hasattr(owner, "initialize_request"):
            raise ImproperlyConfigured(
                f"@idempotent() on {owner.__name__}.{name}: methods are guarded in Django's class-based views. "
                "In DRF mix IdempotentViewMixin into the class; get_idempotency_policy() says what each action asks for."
            )
        if name not in UNSAFE_HANDLERS:
            raise ImproperlyConfigured(
                f"@idempotent() on {owner.__name__}.{name}: it is no handler of {UNSAFE_HANDLERS}."
            )
        _guard_handlers(owner, [name], self.policy)


def _on_class(cls: type[Any], policy: Policy) -> type[Any]:
    if not issubclass(cls, View):
        raise ImproperlyConfigured(f"@idempotent() on {cls.__name__}: it is no View.")
    if hasattr(cls, "initialize_request"):  # DRF's, told apart without importing DRF
        from .rest_framework.lending import lent_class

        return lent_class(cls, policy)
    _guard_handlers(cls, [name for name in UNSAFE_HANDLERS if hasattr(cls, name)], policy)
    _guard_subclasses(cls, policy)
    return cls


def _guard_subclasses(cls: type[Any], policy: Policy) -> None:
    """Guard the handlers that a subclass has of its own, too, as those of a DRF class are; not what it has exempted."""
    begun = _next(cls, "__init_subclass__")

    def __init_subclass__(klass: type[Any], /, **kwargs: Any) -> None:  # noqa: N807 - it becomes one
        for name in UNSAFE_HANDLERS:
            handler = getattr(klass, name, None)
            if handler is not None and not hasattr(handler, POLICY) and not hasattr(handler, EXEMPT):
                _guard_handler(klass, name, policy, on=_next(klass, "dispatch"))
        begun(klass, **kwargs)  # last: the terms of the nearest base win

    cls.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[assignment]


def _guard_handlers(cls: type[Any], names: list[str], policy: Policy) -> None:
    """Guard a class's handlers, so that its mixins (LoginRequiredMixin) come first, and leave ATOMIC_REQUESTS."""
    dispatch = _next(cls, "dispatch")
    declared = declared_non_atomic(dispatch)
    for name in names:
        _guard_handler(cls, name, policy, on=dispatch)
    if any(iscoroutinefunction(getattr(cls, name)) for name in names):
        return  # Django itself refuses ATOMIC_REQUESTS for async views

    @functools.wraps(dispatch)
    def leaving(self: View, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        handler = getattr(self, (request.method or "").lower(), None)
        with nullcontext() if hasattr(handler, POLICY) else atomic_requests(declared | declared_for(request)):
            return dispatch(self, request, *args, **kwargs)

    as_view = _next(cls, "as_view")

    @functools.wraps(as_view)
    def leaving_view(klass: type[Any], *args: Any, **kwargs: Any) -> Any:
        # Not on dispatch, whose mark all views of the class would share, with what non_atomic_requests() adds to one.
        return leave_atomic_requests(as_view(klass, *args, **kwargs))

    cls.dispatch = leaving
    cls.as_view = classonlymethod(leaving_view)


def _guard_handler(cls: type[Any], name: str, policy: Policy, *, on: Callable[..., Any]) -> None:
    _refuse_access_decorator(getattr(cls, name), f"{cls.__name__}.{name}")
    setattr(cls, name, _guarded(_next(cls, name), policy, on=on))


def _next(cls: type[Any], name: str) -> Callable[..., Any]:
    """Return a class's method to wrap.

    What it inherits is looked up at each call: a subclass may have put a mixin (LoginRequiredMixin) between the two.
    """
    found = getattr(cls, name)
    function: Callable[..., Any] = getattr(found, "__func__", found)  # as_view's
    if name in vars(cls):
        return function

    @functools.wraps(function)
    def inherited(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(cls, self), name)(*args, **kwargs)

    return markcoroutinefunction(inherited) if iscoroutinefunction(function) else inherited
