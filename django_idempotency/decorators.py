"""The `@idempotent` decorator for any view: sync or async, function, method or class."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar, overload

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.decorators import classonlymethod
from django.views import View

from . import conf
from .core.policy import Policy
from .core.records import MISSING, Guarantee
from .errors import ConfigurationError
from .graphql.hook import library_view
from .http.atomic_requests import atomic_requests, leave_atomic_requests, non_atomic_aliases, non_atomic_aliases_of
from .http.markers import EXEMPT, POLICY, REFUSAL, UNSAFE_HANDLERS, next_method, rest_class, view_class
from .http.running import arun_guarded, run_guarded
from .http.selection import compile_expressions
from .http.unguarded import watched
from .ninja import hook

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

#: What `@idempotent_form` is short for. A second click waits for the result of the first.
FORM_FIELDS: dict[str, Any] = {"profile": "form", "key_format": "issued", "required": True, "on_busy": "wait"}


def idempotency_exempt(view: Decorated) -> Decorated:
    """Exempt a view from the middleware, such as login, signup or tokens, whose responses must not be stored."""
    setattr(view, EXEMPT, True)
    return view


@overload
def idempotent(view: Decorated, /) -> Decorated: ...


@overload
def idempotent(**fields: Any) -> Callable[[Decorated], Decorated]: ...


def idempotent(view: Any = MISSING, /, **fields: Any) -> Any:
    """Make a view safe to retry. Takes the fields of `Policy`, or nothing: `@idempotent` is `@idempotent()`.

    On a function it goes below `login_required` and similar decorators, on a DRF function above `@api_view`; on a class
    it guards the handlers of unsafe methods. Raises `ValueError` for an invalid field, and `ImproperlyConfigured` where
    it could not keep its promise.
    """
    policy = Policy(**fields)
    compile_expressions(policy)

    def decorate(view: Any) -> Any:
        if inspect.isclass(view):
            return _on_class(view, policy)
        _refuse_what_cannot_work(view)
        if rest_class(view) is not None:
            from .rest_framework.view_adapter import with_mixin

            return with_mixin(view, policy)
        if _is_method(view):
            return _Method(view, policy)
        return _guarded(view, policy)

    return decorate if view is MISSING else decorate(view)


@overload
def idempotent_form(view: Decorated, /) -> Decorated: ...


@overload
def idempotent_form(**fields: Any) -> Callable[[Decorated], Decorated]: ...


def idempotent_form(view: Any = MISSING, /, **fields: Any) -> Any:
    """Process an HTML form once, however often it is sent. `{% idempotency_field %}` is in the form.

    Short for `@idempotent(profile="form", key_format="issued", required=True, on_busy="wait")`, with any other field of
    `Policy`. See idempotent() for where it goes and what it raises.
    """
    decorate = idempotent(**{**FORM_FIELDS, **fields})
    return decorate if view is MISSING else decorate(view)


def _refuse_what_cannot_work(view: Any) -> None:
    name = _name(view)
    if not callable(view):
        raise ImproperlyConfigured(f"@idempotent() needs a view, not {name}.")
    if view.__module__ == "django.utils.decorators" or (
        isinstance(view, functools.partial) and hasattr(view, "__wrapped__")
    ):
        raise ImproperlyConfigured(
            "method_decorator(idempotent()) cannot work. Put @idempotent() on the method itself."
        )
    hook.refuse_misplaced(view)
    hook.refuse_generator(view)
    if (cls := view_class(view)) is not None and rest_class(view) is None:
        raise ImproperlyConfigured(
            f"@idempotent() around {cls.__name__}.as_view() would replay before the class has checked "
            "access. Put @idempotent() on the class."
        )
    _refuse_access_decorator(view, name)


def _refuse_access_decorator(view: Any, name: str) -> None:
    if hasattr(view, "login_url"):  # what user_passes_test leaves on a view
        raise ImproperlyConfigured(
            f"@idempotent() above the access decorator of {name} would replay without asking it. Swap the two lines; on "
            "a class, put the access decorator on its dispatch."
        )


def _name(view: Any) -> str:
    """Name a view: a partial or an instance has no name of its own."""
    return getattr(view, "__qualname__", None) or repr(view)


def _is_async(view: Any) -> bool:
    """Does a view return a coroutine? For an instance, its `__call__` decides."""
    return iscoroutinefunction(view) or iscoroutinefunction(getattr(type(view), "__call__", None))  # noqa: B004


def _guarded(view: Callable[..., Any], policy: Policy, *, on: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Guard a view. `on` is what carries `@non_atomic_requests`, if not the view: a class's dispatch."""
    if _is_async(view):
        return _guarded_async(view, policy)

    @functools.wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        source = _request_in(args, kwargs)
        call = functools.partial(view, *args, **kwargs)
        if hasattr(source, "_request"):
            from .rest_framework.functions import run_inside

            return run_inside(source, policy, call)
        if (operation := hook.call_of(source, policy)) is not None:
            return operation.enter(call)
        # Read at the call, since a @non_atomic_requests may be above this decorator.
        non_atomic = (
            non_atomic_aliases(guarded) if on is None else non_atomic_aliases(on) | non_atomic_aliases_of(source)
        )
        return run_guarded(source, policy, call, source=source, non_atomic=non_atomic)

    setattr(guarded, POLICY, policy)
    hook.offer(guarded, view, policy)
    return leave_atomic_requests(guarded)


def _guarded_async(view: Callable[..., Any], policy: Policy) -> Callable[..., Any]:
    if conf.field(policy, "guarantee") != Guarantee.LEASE:
        raise ImproperlyConfigured(
            f"{_name(view)} is async, and no transaction can cover it. "
            'Type @idempotent(guarantee="lease"), or make it a sync view.'
        )

    @functools.wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        source = _request_in(args, kwargs)
        call = functools.partial(view, *args, **kwargs)
        if hasattr(source, "_request"):
            from .rest_framework.asynchronous import arun_inside

            return await arun_inside(source, policy, call)
        if (operation := hook.call_of(source, policy)) is not None:
            return await operation.aenter(call)
        return await arun_guarded(source, policy, call)

    setattr(guarded, POLICY, policy)
    hook.offer(guarded, view, policy)
    return markcoroutinefunction(guarded)


def _request_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the request among the arguments of a function (first) or a method (second); Django's or DRF's."""
    for value in (*args[:2], kwargs.get("request")):
        if isinstance(value, HttpRequest) or hasattr(value, "_request"):
            return value
    raise ConfigurationError("@idempotent() guards views: the first argument must be a request.")


# ----------------------------------------------------------------------------------------------------------- classes


def _is_method(view: Any) -> bool:
    """Is it defined in a class body? A bound method counts as a function."""
    return inspect.isfunction(view) and "." in getattr(view, "__qualname__", "").rpartition("<locals>.")[2]


#: Marks a dispatch() of ours.
_LEAVES = "idempotency_leaves"

_HIDDEN = (
    "another decorator above it, such as a method_decorator or a staticmethod, hides it from its class. "
    "Swap the two lines, or put @idempotent() on a function."
)


class _Method:
    """Holds a decorated method until its class exists, and then guards it there.

    A method that cannot be guarded raises when it is looked up, as by `as_view()`. Before Python 3.12 an exception in
    `__set_name__` would only appear as the cause of another.
    """

    def __init__(self, method: Callable[..., Any], policy: Policy) -> None:
        functools.update_wrapper(self, method)  # a decorator above, such as DRF's @action, asks for its name
        self._method = method
        self._policy = policy
        # In its __dict__: decorators around it copy that, so `manage.py check` finds it.
        setattr(self, REFUSAL, f"@idempotent() on {_name(method)}: {_HIDDEN}")

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        raise ImproperlyConfigured(getattr(self, REFUSAL))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ImproperlyConfigured(getattr(self, REFUSAL))

    def __set_name__(self, owner: type[Any], name: str) -> None:
        try:
            self._guard(owner, name)
        except ImproperlyConfigured as error:
            setattr(self, REFUSAL, str(error))
            setattr(owner, name, self)

    def _guard(self, owner: type[Any], name: str) -> None:
        setattr(owner, name, self._method)
        if hook.ROUTE in vars(self):
            from .ninja.controllers import guard_method  # needs django-ninja-extra, which has made it a route

            bare = vars(_Method(self._method, self._policy))
            vars(self._method).update({name: mark for name, mark in vars(self).items() if name not in bare})
            guard_method(self._method, self._policy, _guarded)
            return
        if not issubclass(owner, View) or hasattr(owner, "initialize_request"):
            raise ImproperlyConfigured(
                f"@idempotent() on {owner.__name__}.{name}: methods are guarded in Django's class-based views. "
                "In DRF mix IdempotentViewMixin into the class; get_idempotency_policy() chooses a policy for each action."
            )
        if name not in UNSAFE_HANDLERS:
            raise ImproperlyConfigured(
                f"@idempotent() on {owner.__name__}.{name}: it is not one of the handlers {UNSAFE_HANDLERS}."
            )
        _guard_handlers(owner, [name], self._policy)


def _on_class(cls: type[Any], policy: Policy) -> type[Any]:
    if not issubclass(cls, View):
        raise ImproperlyConfigured(f"@idempotent() on {cls.__name__}: it is not a subclass of View.")
    if hasattr(cls, "initialize_request"):  # DRF's, recognized without importing DRF
        from .rest_framework.view_adapter import guard_class

        return guard_class(cls, policy)
    if (library := library_view(cls)) is not None:
        from .graphql.views import guard  # needs graphql-core, which such a class has loaded

        return guard(cls, library, policy)
    _refuse_answer_in_dispatch(cls)
    _guard_handlers(cls, [name for name in UNSAFE_HANDLERS if hasattr(cls, name)], policy)
    _guard_subclasses(cls, policy)
    return cls


def _refuse_answer_in_dispatch(cls: type[Any]) -> None:
    """Refuse a class without a handler to guard whose `dispatch()` is not Django's: it may respond there."""
    if any(hasattr(cls, name) for name in UNSAFE_HANDLERS):
        return
    for base in cls.__mro__[: cls.__mro__.index(View)]:
        dispatch = vars(base).get("dispatch")
        if dispatch is not None and not hasattr(dispatch, _LEAVES) and base.__module__.partition(".")[0] != "django":
            raise ImproperlyConfigured(
                f"@idempotent() on {cls.__name__} guards post(), put(), patch() and delete(), but it has none of them: "
                f"{base.__name__} responds in dispatch(). Put @idempotent() on a function that calls "
                f"{cls.__name__}.as_view()(request), below what authenticates the client, or leave it to "
                "IdempotencyMiddleware."
            )


def _guard_subclasses(cls: type[Any], policy: Policy) -> None:
    """Also guard the handlers that subclasses add, as DRF classes do, except those they exempt."""
    begun = next_method(cls, "__init_subclass__")

    def __init_subclass__(klass: type[Any], /, **kwargs: Any) -> None:  # noqa: N807 - it becomes one
        for name in UNSAFE_HANDLERS:
            handler = getattr(klass, name, None)
            if handler is not None and not hasattr(handler, POLICY) and not hasattr(handler, EXEMPT):
                _guard_handler(klass, name, policy, on=next_method(klass, "dispatch"))
        _refuse_answer_in_dispatch(klass)
        begun(klass, **kwargs)  # last: the policy of the nearest base wins

    cls.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[assignment]


def _guard_handlers(cls: type[Any], names: list[str], policy: Policy) -> None:
    """Guard a class's handlers, so that mixins such as LoginRequiredMixin run first, and leave ATOMIC_REQUESTS."""
    dispatch = next_method(cls, "dispatch")
    non_atomic = non_atomic_aliases(dispatch)
    for name in names:
        _guard_handler(cls, name, policy, on=dispatch)
    if any(iscoroutinefunction(getattr(cls, name)) for name in names):
        return  # Django itself refuses ATOMIC_REQUESTS for async views

    @functools.wraps(dispatch)
    def leaving(self: View, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        handler = getattr(self, (request.method or "").lower(), None)
        with (
            nullcontext() if hasattr(handler, POLICY) else atomic_requests(non_atomic | non_atomic_aliases_of(request))
        ):
            return dispatch(self, request, *args, **kwargs)

    setattr(leaving, _LEAVES, True)
    as_view = next_method(cls, "as_view")

    @functools.wraps(as_view)
    def leaving_view(klass: type[Any], *args: Any, **kwargs: Any) -> Any:
        # Not on dispatch: all views of the class share its mark, with what non_atomic_requests() adds for one of them.
        return leave_atomic_requests(watched(as_view(klass, *args, **kwargs), policy))

    cls.dispatch = leaving
    cls.as_view = classonlymethod(leaving_view)


def _guard_handler(cls: type[Any], name: str, policy: Policy, *, on: Callable[..., Any]) -> None:
    _refuse_access_decorator(getattr(cls, name), f"{cls.__name__}.{name}")
    setattr(cls, name, _guarded(next_method(cls, name), policy, on=on))
