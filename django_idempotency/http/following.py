"""What may stand before a view for the middleware to replay its response, and is asked again: an
allow-list.

A replay does not run the view. A client that has lost its permission must not read the response
that it was given earlier, so what stands before the view is asked again. Whatever is not known here
may check access: then nothing is replayed, unless the project authorizes replays itself. Nothing is
searched for the view: each wrapper of Django's has it in a place that is known.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.apps import apps
from django.core.exceptions import PermissionDenied
from django.db.transaction import Atomic
from django.http import Http404, HttpRequest
from django.utils.module_loading import import_string
from django.views import View

from .. import conf
from ..errors import ReplayRefused, ReplayUnchecked
from ..runtime.wings import wing
from .layers import cells_of, name_of_code, untraced
from .markers import rest_class
from .views import PlannedRoute

logger = logging.getLogger("django_idempotency")

#: A check before a replay, called as the view would be: may this request pass?
Check = Callable[..., Any]


class Unfollowed(Exception):
    """A layer before a view is not known."""


@dataclass(slots=True)
class Path:
    """The access checks before a view."""

    checks: list[Check] = field(default_factory=list)
    #: The methods that each `require_http_methods()` lets pass.
    allowed: list[Collection[str]] = field(default_factory=list)
    #: The class behind an `as_view()`, and its arguments.
    cls: type[View] | None = None
    initkwargs: dict[str, Any] = field(default_factory=dict)


def path_to(callback: Any, method: str) -> Path:
    """Follow a callback to its view. Raises `Unfollowed` for a layer that is not known."""
    path = Path()
    _follow(callback, path)
    if path.cls is not None:
        _follow_class(path.cls, method, path)
    return path


def unfollowed(callback: Any, method: str) -> str | None:
    """Return the layer before a view that is not known, or `None`.

    A view of REST framework checks access itself.
    """
    if rest_class(callback) is not None:
        return None
    try:
        path_to(callback, method)
    except Unfollowed as error:
        return str(error)
    return None


def ask_again(
    route: PlannedRoute,
    request: HttpRequest,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    authorized: bool,
) -> None:
    """Repeat every access check before a view.

    Raises `ReplayRefused` if one refuses the request, and `ReplayUnchecked` if one cannot be
    repeated, unless the project checks replays itself (`authorized`).
    """
    try:
        if route.followed is None:
            route.followed = path_to(route.callback, route.method)
        path: Path = route.followed
    except Unfollowed as error:
        if authorized:
            return
        logger.warning(
            "A replay of %s %s is refused: %s comes before the view, and cannot be asked "
            "again. Put @idempotent() below it.",
            request.method,
            request.path,
            error,
        )
        raise ReplayUnchecked from error
    asks = path.checks or path.cls is not None
    if asks and not _enters(path, request, args, kwargs):
        raise ReplayRefused


def may_be_refused(route: PlannedRoute) -> bool:
    """Does something stand before the view that may refuse a request, and can it be asked?"""
    try:
        if route.followed is None:
            route.followed = path_to(route.callback, route.method)
    except Unfollowed:
        return False
    path: Path = route.followed
    mixed = path.cls is not None and issubclass(path.cls, access_mixins())
    return bool(path.checks) or mixed or _refuses_method(path, route.method)


def refuses(
    route: PlannedRoute, request: HttpRequest, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Does what stands before the view refuse a request?

    Asked where `may_be_refused()` has said that it may.
    """
    path: Path = route.followed
    return _refuses_method(path, route.method) or not _enters(path, request, args, kwargs)


def _refuses_method(path: Path, method: str) -> bool:
    """Is the view, or the handler of a class, never called for a method?"""
    if path.cls is not None and not hasattr(path.cls, method.lower()):
        return True
    return any(method not in methods for methods in path.allowed)


def _enters(
    path: Path, request: HttpRequest, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    try:
        enters = all(check(request, *args, **kwargs) for check in path.checks)
        return enters and (path.cls is None or _class_passes(path.cls, path, request, args, kwargs))
    except (PermissionDenied, Http404):
        return False


def _class_passes(
    cls: type[View], path: Path, request: HttpRequest, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Run a class's own setup() and Django's access mixins."""
    asking = access_mixins()
    if not asking or (cls.setup is View.setup and not issubclass(cls, asking)):
        return True
    login, permission, test = asking
    view: Any = cls(**path.initkwargs)
    view.setup(request, *args, **kwargs)
    if isinstance(view, login) and not request.user.is_authenticated:
        return False  # its key may be another principal's: `scopes.before_user`
    permitted = not isinstance(view, permission) or view.has_permission()
    return permitted and (not isinstance(view, test) or bool(view.get_test_func()()))


# ------------------------------------------------------------------------------------ what is known


def _nothing(_: dict[str, Any], __: Path) -> None:
    """Its wrappers check no access."""


def _require_methods(cells: dict[str, Any], path: Path) -> None:
    path.allowed.append(cells["request_method_list"])


def _user_passes_test(cells: dict[str, Any], path: Path) -> None:
    test = cells["test_func"]
    path.checks.append(lambda request, *_, **__: called(test, getattr(request, "user", None)))


def _method_decorator(cells: dict[str, Any], path: Path) -> None:
    def view(request: HttpRequest) -> None: ...

    for decorate in cells["decorators"]:  # as it does at each call
        _follow(decorate(view), path)


def _decorator_from_middleware(cells: dict[str, Any], _: Path) -> None:
    middleware = type(cells_of(cells["_pre_process_request"])["middleware"])
    if not middleware.__module__.startswith(("django.middleware.", "django.views.decorators.")):
        raise Unfollowed(_name_of(middleware))


def _admin_view(cells: dict[str, Any], path: Path) -> None:
    site = getattr(cells["self"], "admin_site", cells["self"])
    from django.contrib.admin.sites import AdminSite  # loaded, since it has made the view

    if type(site).admin_view is not AdminSite.admin_view:
        raise Unfollowed(f"{_name_of(type(site))}.admin_view()")
    path.checks.append(lambda request, *_, **__: site.has_permission(request))


def _atomic(cells: dict[str, Any], _: Path) -> None:
    if not isinstance(cells["self"], Atomic):
        raise Unfollowed(_name_of(type(cells["self"])))


def _as_view(cells: dict[str, Any], path: Path) -> None:
    path.cls = cells["cls"]
    path.initkwargs = cells["initkwargs"]


#: Django's wrappers: the module that they are written in, a name that they hold, the name by which
#: they hold the view (none: it is made of the class), and what they ask.
_KNOWN: tuple[tuple[str, str, str | None, Callable[[dict[str, Any], Path], None]], ...] = (
    ("django.views.decorators.http", "request_method_list", "func", _require_methods),
    ("django.views.decorators.", "view_func", "view_func", _nothing),
    ("django.views.decorators.", "viewfunc", "viewfunc", _nothing),
    ("django.views.decorators.", "func", "func", _nothing),
    ("django.views.decorators.", "view", "view", _nothing),
    ("django.contrib.auth.decorators", "test_func", "view_func", _user_passes_test),
    ("django.utils.decorators", "_pre_process_request", "view_func", _decorator_from_middleware),
    ("django.utils.decorators", "decorators", "method", _method_decorator),
    ("django.contrib.admin.sites", "self", "view", _admin_view),
    ("django.contrib.admin.options", "self", "view", _admin_view),
    ("contextlib", "self", "func", _atomic),
    ("django.views.generic.base", "initkwargs", None, _as_view),
)
#: Our modules whose wrappers check no access: around the handlers and the dispatch of a decorated
#: class.
_OURS = (
    "django_idempotency.decorators.views",
    "django_idempotency.decorators.classes",
    "django_idempotency.http.unguarded",
    "django_idempotency.http.markers",
)
#: Django's, besides the view of a class: the methods that an admin site and its model admins have
#: for views.
_ADMINS = ("django.contrib.admin.sites.AdminSite", "django.contrib.admin.options.BaseModelAdmin")
#: What a partial and the parameters of a view may hold: none of it can be called.
_PLAIN = (type(None), bool, int, float, str, bytes)


def _follow(layer: Any, path: Path, *, of_class: bool = False) -> Any:
    """Return the view, or the method of a class, that a layer is around, and collect the checks on
    the way.
    """
    while (inner := _inside(layer := untraced(layer), path, of_class=of_class)) is not None:
        layer = inner
    return layer


def _inside(layer: Any, path: Path, *, of_class: bool) -> Any:
    """Return what a layer calls; `None`: it is the view."""
    kind = type(layer)
    if kind is functools.partial and _are_plain(*layer.args, *layer.keywords.values()):
        return layer.func
    if kind is MethodType and any(
        _name_of(base) in _ADMINS for base in type(layer.__self__).__mro__
    ):
        return layer.__func__
    if kind is not FunctionType:
        raise Unfollowed(_name_of(kind))
    if _is_view(layer):
        return None
    module = layer.__globals__.get("__name__", "")
    cells = cells_of(layer)
    if module in _OURS:
        return layer.__wrapped__
    for known, name, inner, ask in _KNOWN:
        if module.startswith(known) and name in cells:
            ask(cells, path)
            return None if inner is None else cells[inner]
    named = [] if of_class else _named()  # around a method, a check needs its object
    found = wing("replay_through").inside(layer, cells, path, named) if named else None
    if found is None:
        raise Unfollowed(name_of_code(module, layer.__code__))
    return found


def _is_view(function: FunctionType) -> bool:
    """Is it a plain function, which holds nothing that it might call? `super()` needs the class."""
    return (
        function.__name__ != "<lambda>"
        and not hasattr(function, "__wrapped__")
        and function.__code__.co_freevars in ((), ("__class__",))
        and _are_plain(*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    )


def _are_plain(*values: Any) -> bool:
    return all(type(value) in _PLAIN for value in values)


def _follow_class(cls: type[View], method: str, path: Path) -> None:
    for base in cls.__mro__:  # each dispatch calls that of its super()
        dispatch = vars(base).get("dispatch")
        if dispatch is None or untraced(dispatch) in _dispatches() or base in _named():
            continue
        if _follow(dispatch, path, of_class=True) not in _dispatches():
            raise Unfollowed(f"{_name_of(base)}.dispatch()")
    handler = getattr(cls, method.lower(), None)
    if handler is not None:
        _follow(handler, path, of_class=True)


def access_mixins() -> tuple[Any, ...]:
    """Return Django's mixins that ask for a login, for permissions, and for a test; none where its
    users are not installed.
    """
    if not apps.is_installed("django.contrib.auth"):
        return ()
    from django.contrib.auth import mixins  # loads its models

    return mixins.LoginRequiredMixin, mixins.PermissionRequiredMixin, mixins.UserPassesTestMixin


def _dispatches() -> tuple[Any, ...]:
    """Return the `dispatch()` methods of Django that check nothing, and of its mixins, whose checks
    are repeated.
    """
    return tuple(untraced(cls.dispatch) for cls in (View, *access_mixins()))


def _named() -> list[Any]:
    return [import_string(path) for path in conf.get("REPLAY_THROUGH")]


def called(check: Any, *args: Any, **kwargs: Any) -> Any:
    """Ask a sync or an async check."""
    return (
        async_to_sync(check)(*args, **kwargs)
        if iscoroutinefunction(check)
        else check(*args, **kwargs)
    )


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
