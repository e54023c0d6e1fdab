"""Under the middleware a replay repeats every check in front of the view, or is not given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from operator import attrgetter, itemgetter
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import login_required, user_passes_test
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.mixins import (
    LoginRequiredMixin,
    PermissionRequiredMixin,
    UserPassesTestMixin,
)
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils.decorators import decorator_from_middleware, method_decorator
from django.utils.module_loading import import_string
from django.views import View
from django.views.decorators.cache import cache_control
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import condition, require_http_methods
from django.views.decorators.vary import vary_on_cookie, vary_on_headers
from pytest_django import Settings

from django_idempotency import idempotency_exempt, idempotent
from tests.support.factories import AdminFactory

from .conftest import KEY, effects
from .outcome_views import Pay, pay

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


def refuse_others(request: Any) -> None:
    if not request.user.is_staff:
        raise PermissionDenied


def staff_only(view: Any) -> Any:
    """A project's own decorator, which exposes what it wraps."""

    @functools.wraps(view)
    def check(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        refuse_others(request)
        return view(request, *args, **kwargs)

    return check


def silently(view: Any) -> Any:
    """A decorator that does not."""

    def check(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        refuse_others(request)
        return view(request, *args, **kwargs)

    return check


async def is_staff(user: Any) -> bool:
    """A test of `user_passes_test()` may be async."""
    return bool(user.is_staff)


def transacted(self: Any, view: Any) -> Any:
    """A decorator that holds what `transaction.atomic` holds, and checks."""

    @functools.wraps(view)
    def inner(request: HttpRequest) -> Any:
        refuse_others(request)
        with self:
            return view(request)

    return inner


def checked(view: Any, request: HttpRequest) -> Any:
    refuse_others(request)
    return view(request)


class Checked:
    """A view as an object."""

    def __init__(self, view: Any) -> None:
        self.view = view

    def __call__(self, request: HttpRequest) -> Any:
        return checked(self.view, request)

    run = __call__


@dataclass
class Held:
    view: Any


class Clerks(admin.ModelAdmin):
    @admin.options.csrf_protect_m
    def pay(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


class Proxy:
    """An object with the code, the closure and the class of what it wraps, as wrapt's proxies
    have.
    """

    __slots__ = ("_view",)

    def __init__(self, view: Any) -> None:
        object.__setattr__(self, "_view", view)

    @property
    def __wrapped__(self) -> Any:
        return self._view

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._view.__class__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def __call__(self, request: HttpRequest) -> Any:
        return checked(self._view, request)


def holding(holder: Any, find: Callable[[Any], Any]) -> Any:
    """A gate that holds its view one step deeper, and finds it there at each request."""

    def check(request: HttpRequest) -> Any:
        return checked(find(holder), request)

    return check


#: Where a gate may hold its view, and how it finds it there.
HOLDERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "namespace": (SimpleNamespace(view=pay), attrgetter("view")),
    "dataclass": (Held(pay), attrgetter("view")),
    "runner": (Checked(pay), attrgetter("run")),
    "nested-dict": ({"of": {"the": pay}}, lambda held: held["of"]["the"]),
    "mapping-proxy": (MappingProxyType({"view": pay}), itemgetter("view")),
    "partial": (functools.partial(pay), lambda held: held),
    "list": ([[pay]], lambda held: held[0][0]),
    "class": (Pay, lambda held: held.as_view()),
    "name": (f"{pay.__module__}.{pay.__name__}", import_string),
}


def by_default(view: Any) -> Any:
    """A gate that has its view as the default of a parameter."""

    def check(request: HttpRequest, *, inner: Any = view) -> Any:
        return checked(inner, request)

    return check


def with_default(
    request: HttpRequest, currency: str = "inr", *, cents: bool = False
) -> HttpResponse:
    return pay(request)


class StaffMiddleware:
    def __init__(self, get_response: Any) -> None: ...

    def process_request(self, request: Any) -> None:
        refuse_others(request)


class InDispatch(View):
    """It has no handler, like many views of GraphQL."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return pay(request)


class ByDispatch(Pay):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        refuse_others(request)
        return super().dispatch(request, *args, **kwargs)


@idempotent()
class GuardedByDispatch(ByDispatch):
    pass


class BySetup(Pay):
    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        if not getattr(request.user, "is_staff", False):
            raise Http404


class ByTest(LoginRequiredMixin, UserPassesTestMixin, Pay):
    def test_func(self) -> bool:
        return bool(getattr(self.request.user, "is_staff", False))


@method_decorator([vary_on_cookie, staff_member_required], name="dispatch")
class ByDjangosDecorator(Pay):
    pass


class ByDjangosHandler(Pay):
    @method_decorator(staff_member_required)
    def post(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


@method_decorator(staff_only, name="dispatch")
class ByOwnDecorator(Pay):
    pass


class ByOwnHandler(Pay):
    @method_decorator(staff_only)
    def post(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


class ByPermission(PermissionRequiredMixin, Pay):
    raise_exception = True

    def has_permission(self) -> bool:
        return bool(getattr(self.request.user, "is_staff", False))


class BySuper(ByTest):
    """Its handler closes over its class, for `super()`."""

    def post(self, request: HttpRequest) -> HttpResponse:
        return super().post(request)


class OwnAsView(Pay):
    @classmethod
    def as_view(cls, **kwargs: Any) -> Any:
        return silently(super().as_view(**kwargs))


class ByTestWithGuardedPut(ByTest):
    """The middleware guards its post() only: our own dispatch comes before that."""

    @idempotent
    def put(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


class ByDispatchWithGuardedPut(ByDispatch):
    @idempotent
    def put(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


def lying(view: Any) -> Any:
    """Wraps one thing and calls another, as admin_view() does."""

    def check(request: HttpRequest) -> Any:
        return silently(view)(request)

    check.__wrapped__ = view  # type: ignore[attr-defined]
    return vary_on_cookie(check)


#: Wrappers that can be looked through, so their checks can be repeated.
ASKED: dict[str, Any] = {
    "login": staff_member_required(pay),
    "class": staff_member_required(Pay.as_view()),
    "async-test": user_passes_test(is_staff)(pay),  # type: ignore[arg-type]
    "setup": BySetup.as_view(),
    "test": ByTest.as_view(),
    "permission": ByPermission.as_view(),
    "super": BySuper.as_view(),
    "test-and-ours": ByTestWithGuardedPut.as_view(),
    "dispatch-decorator": ByDjangosDecorator.as_view(),
    "handler-decorator": ByDjangosHandler.as_view(),
    "in-harmless": csrf_exempt(
        transaction.atomic(sensitive_post_parameters()(staff_member_required(pay)))
    ),
    "around-harmless": staff_member_required(
        require_http_methods(["POST"])(vary_on_headers("X")(cache_control(private=True)(pay)))
    ),
    "condition": staff_member_required(condition(lambda request: None)(pay)),
}
#: Wrappers that cannot.
UNFOLLOWED: dict[str, Any] = {
    "own": staff_only(pay),
    "own-inside-djangos": login_required(staff_only(pay)),
    "without-wraps": silently(pay),
    "lambda": lambda request: checked(pay, request),
    "object-around": Checked(pay),
    "partial-around": functools.partial(checked, pay),
    "partial": functools.partial(staff_member_required(pay)),
    "from-middleware": decorator_from_middleware(StaffMiddleware)(pay),
    "from-djangos-middleware": csrf_protect(pay),
    "admin-view": admin.site.admin_view(pay, cacheable=True),
    # Its outermost layer is Django's never_cache(), and says that it wraps the view.
    "admin-view-of-an-open-view": admin.site.admin_view(csrf_exempt(pay)),
    "admin-view-of-a-method": admin.site.admin_view(Clerks(User, admin.site).pay, cacheable=True),
    "dispatch": ByDispatch.as_view(),
    "in-dispatch": InDispatch.as_view(),
    "dispatch-and-ours": ByDispatchWithGuardedPut.as_view(),
    "own-on-dispatch": ByOwnDecorator.as_view(),
    "own-on-handler": ByOwnHandler.as_view(),
    "as-view": OwnAsView.as_view(),
    "lying": lying(pay),
    "like-atomic": transacted(transaction.atomic(), pay),
    "lying-about-djangos": update_wrapper(csrf_exempt(silently(pay)), pay),
    **{f"in-a-{name}": holding(*held) for name, held in HOLDERS.items()},
    "default-around": by_default(pay),
    "bound-method": Checked(pay).run,
    "login-middleware": decorator_from_middleware(LoginRequiredMiddleware)(pay),
    "bound-dispatch": ByOwnHandler().dispatch,
    "proxy": Proxy(login_required(pay)),
    "proxy-of-a-class": Proxy(Pay.as_view()),
    "cached": functools.lru_cache(maxsize=None)(staff_only(pay)),
}
#: Views behind nothing, or behind code that checks nothing.
OPEN: dict[str, Any] = {
    "plain": pay,
    "class": Pay.as_view(),
    "logged-in": login_required(pay),
    "default": with_default,
}
#: The guard is below the checks.
BELOW: dict[str, Any] = {
    "own": staff_only(idempotent()(pay)),
    "dispatch": GuardedByDispatch.as_view(),
}

urlpatterns = [
    *(path(f"asked/{name}/", view) for name, view in ASKED.items()),
    *(path(f"unfollowed/{name}/", view) for name, view in UNFOLLOWED.items()),
    *(path(f"open/{name}/", view) for name, view in OPEN.items()),
    *(path(f"below/{name}/", view) for name, view in BELOW.items()),
    path("exempt/", idempotency_exempt(staff_only(pay))),
]

Send = Callable[[str], Any]
HERE = __name__


@pytest.fixture
def staff() -> User:
    return AdminFactory()


@pytest.fixture
def send(staff: User) -> Send:
    client = Client()
    client.force_login(staff)
    return lambda url: client.post(f"/{url}/", headers={"Idempotency-Key": KEY})


def withdraw(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_staff=False, is_superuser=False)


@pytest.mark.parametrize("name", ASKED)
def test_what_can_be_looked_through_is_asked(send: Send, staff: User, name: str) -> None:
    """An allowed caller gets the replay; one who has lost the right since does not."""
    assert [send(f"asked/{name}").status_code, send(f"asked/{name}")["Idempotent-Replayed"]] == [
        201,
        "true",
    ]
    withdraw(staff)
    refused = send(f"asked/{name}")
    assert (refused.status_code, refused.json()["code"], effects()) == (403, "replay-refused", 1)


@pytest.mark.parametrize("name", UNFOLLOWED)
def test_what_cannot_be_followed_is_not_replayed(send: Send, staff: User, name: str) -> None:
    """No caller gets the response a second time, and nothing runs a second time."""
    assert send(f"unfollowed/{name}").status_code == 201
    for _ in range(2):
        refused = send(f"unfollowed/{name}")
        assert (refused.status_code, refused.json()["code"], effects()) == (
            403,
            "replay-unchecked",
            1,
        )
        withdraw(staff)


def test_the_log_says_what_to_type(send: Send, caplog: pytest.LogCaptureFixture) -> None:
    """It names the layer by where that is written, and the view."""
    send("unfollowed/own-inside-djangos")
    send("unfollowed/own-inside-djangos")
    said = [record.getMessage() for record in caplog.records if "replay" in record.getMessage()]
    line = staff_only(pay).__code__.co_firstlineno
    (message,) = said
    assert message == (
        f"A replay of POST /unfollowed/own-inside-djangos/ is refused: {HERE}.check (line {line}) "
        "stands before pay, and it is not known what that checks. Put @idempotent() on the view, "
        "below it."
    )


@pytest.mark.parametrize("name", ["own", "dispatch"])
def test_a_project_may_answer_for_its_replays(send: Send, settings: Settings, name: str) -> None:
    """With AUTHORIZE_REPLAY the project decides about each replay itself."""
    settings.IDEMPOTENCY = {"AUTHORIZE_REPLAY": lambda request, outcome: request.user.is_staff}
    assert [
        send(f"unfollowed/{name}").status_code,
        send(f"unfollowed/{name}")["Idempotent-Replayed"],
    ] == [201, "true"]


@pytest.mark.parametrize("name", OPEN)
def test_where_nothing_is_asked(send: Send, staff: User, name: str) -> None:
    """A replay is given where there is nothing to repeat."""
    assert send(f"open/{name}").status_code == 201
    withdraw(staff)
    assert send(f"open/{name}")["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("name", BELOW)
def test_the_decorator_below_is_the_way_out(send: Send, staff: User, name: str) -> None:
    """The checks above the decorator are repeated each time, whatever they are."""
    assert [send(f"below/{name}").status_code, send(f"below/{name}")["Idempotent-Replayed"]] == [
        201,
        "true",
    ]
    withdraw(staff)
    assert (send(f"below/{name}").status_code, effects()) == (403, 1)
