"""Under the middleware a replay repeats every check in front of the view, or is not given."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, update_wrapper
from operator import attrgetter, itemgetter
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.contrib import admin
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import login_required
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.mixins import LoginRequiredMixin, UserPassesTestMixin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.test import AsyncClient, Client
from django.urls import URLResolver, path
from django.utils.decorators import decorator_from_middleware, method_decorator
from django.utils.module_loading import import_string
from django.views import View
from django.views.decorators.cache import cache_control, cache_page
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import condition, require_http_methods
from django.views.decorators.vary import vary_on_cookie, vary_on_headers
from pytest_django import Settings

from django_idempotency import idempotency_exempt, idempotent
from django_idempotency.http.following import unfollowed
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


class StricterSite(admin.AdminSite):
    """It checks more than `has_permission()` says."""

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        return silently(super().admin_view(view, cacheable))


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


@method_decorator(staff_only, name="dispatch")
class ByOwnDecorator(Pay):
    pass


class ByOwnHandler(Pay):
    @method_decorator(staff_only)
    def post(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


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


def for_role(role: str) -> Any:
    """A decorator of the project with an argument."""

    def decorate(view: Any) -> Any:
        def check(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            return (
                view(request, *args, **kwargs)
                if getattr(request.user, role)
                else redirect("/login/")
            )

        async def acheck(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            user = await request.auser()
            return (
                await view(request, *args, **kwargs) if getattr(user, role) else redirect("/login/")
            )

        return update_wrapper(acheck if iscoroutinefunction(view) else check, view)

    return decorate


def with_role_by_default(role: str) -> Any:
    """The same as a default of its wrapper."""

    def decorate(view: Any) -> Any:
        def check(request: HttpRequest, *, role: str = role) -> Any:
            return view(request) if getattr(request.user, role) else redirect("/login/")

        return check

    return decorate


for_staff, for_staff_by_default = for_role("is_staff"), with_role_by_default("is_staff")


def choosy(view: Any) -> Any:
    """A decorator that not every view can have."""
    if view.__module__ != __name__:
        raise TypeError
    return silently(view)


async def awaited(request: HttpRequest) -> HttpResponse:
    return await sync_to_async(pay)(request)


@method_decorator(for_staff, name="dispatch")
class ByNamedDecorator(Pay):
    @method_decorator(silently)
    def post(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


class BareDecorator(Pay):
    """Its handler is decorated as a function is: the check gets the object in place of the
    request.
    """

    @silently
    def post(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


#: What a project names, and views behind that.
HERE = "tests.entry_points.test_asked_again"
THROUGH = [
    f"{HERE}.{name}"
    for name in ("choosy", "staff_only", "silently", "for_staff", "for_staff_by_default")
]
NAMED: dict[str, Any] = {
    "own": staff_only(pay),
    "without-wraps": silently(pay),
    "nested": csrf_exempt(staff_only(login_required(silently(pay)))),
    "with-argument": for_staff(pay),
    "with-default": for_staff_by_default(pay),
    "class": staff_only(Pay.as_view()),
    "methods": ByNamedDecorator.as_view(),
}
#: Views behind what is like it.
NOT_NAMED: dict[str, Any] = {
    "another-argument": for_role("is_superuser")(pay),
    "another-default": with_role_by_default("is_superuser")(pay),
    "named-around-another": staff_only(by_default(pay)),
    "bare-decorator": BareDecorator.as_view(),
}


#: Wrappers that can be looked through, so their checks can be repeated.
ASKED: dict[str, Any] = {
    "partial": functools.partial(staff_member_required(pay)),
    "partial-of-a-class": functools.partial(staff_member_required(Pay.as_view())),
    "setup": BySetup.as_view(),
    "test": ByTest.as_view(),
    "super": BySuper.as_view(),
    "admin-view-of-a-method": admin.site.admin_view(Clerks(User, admin.site).pay, cacheable=True),
    "test-and-ours": ByTestWithGuardedPut.as_view(),
    "dispatch-decorator": ByDjangosDecorator.as_view(),
    "admin-view": admin.site.admin_view(pay, cacheable=True),
    "in-harmless": csrf_exempt(
        transaction.atomic(gzip_page(sensitive_post_parameters()(staff_member_required(pay))))
    ),
    "around-harmless": staff_member_required(
        require_http_methods(["POST"])(
            vary_on_headers("X")(csrf_protect(cache_page(1)(cache_control(private=True)(pay))))
        )
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
    "from-middleware": decorator_from_middleware(StaffMiddleware)(pay),
    "dispatch": ByDispatch.as_view(),
    "in-dispatch": InDispatch.as_view(),
    "dispatch-and-ours": ByDispatchWithGuardedPut.as_view(),
    "own-on-dispatch": ByOwnDecorator.as_view(),
    "own-on-handler": ByOwnHandler.as_view(),
    "as-view": OwnAsView.as_view(),
    "lying": lying(pay),
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
    "partial": functools.partial(pay),
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
    *(path(f"named/{name}/", view) for name, view in NAMED.items()),
    path("named-async/", for_staff(awaited)),
    path("exempt/", idempotency_exempt(staff_only(pay))),
]

Send = Callable[[str], Any]


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


@pytest.mark.parametrize("name", ["own", "dispatch"])
def test_a_project_may_answer_for_its_replays(send: Send, settings: Settings, name: str) -> None:
    """With AUTHORIZE_REPLAY the project decides about each replay itself."""
    settings.IDEMPOTENCY = {"AUTHORIZE_REPLAY": lambda request, outcome: request.user.is_staff}
    assert [
        send(f"unfollowed/{name}").status_code,
        send(f"unfollowed/{name}")["Idempotent-Replayed"],
    ] == [201, "true"]


@pytest.mark.parametrize("name", NAMED)
def test_a_decorator_that_the_project_names_is_asked(
    send: Send, staff: User, settings: Settings, name: str
) -> None:
    """It is run again around a view of ours: only a request that reaches that gets the replay."""
    settings.IDEMPOTENCY = {"REPLAY_THROUGH": THROUGH}
    assert [send(f"named/{name}").status_code, send(f"named/{name}")["Idempotent-Replayed"]] == [
        201,
        "true",
    ]
    withdraw(staff)
    refused = send(f"named/{name}")
    assert (refused.status_code, refused.json()["code"], effects()) == (403, "replay-refused", 1)


def test_an_async_decorator_that_the_project_names_is_asked(
    staff: User, settings: Settings
) -> None:
    settings.IDEMPOTENCY = {"REPLAY_THROUGH": THROUGH, "GUARANTEE": "lease"}
    client = AsyncClient()
    client.force_login(staff)
    send = partial(async_to_sync(client.post), "/named-async/", headers={"Idempotency-Key": KEY})
    assert [send().status_code, send()["Idempotent-Replayed"]] == [201, "true"]
    withdraw(staff)
    assert (send().json()["code"], effects()) == ("replay-refused", 1)


@pytest.mark.parametrize("name", NOT_NAMED)
def test_what_is_like_a_named_decorator_is_not_followed(settings: Settings, name: str) -> None:
    """The same code with another argument, an unknown layer below, a method without its object."""
    settings.IDEMPOTENCY = {"REPLAY_THROUGH": THROUGH}
    assert unfollowed(NOT_NAMED[name], "POST") is not None


def test_a_dispatch_that_the_project_names_is_not_asked(settings: Settings) -> None:
    """Of a view class that it names, a project says that its `dispatch()` checks no access."""
    assert unfollowed(ByDispatch.as_view(), "POST") == f"{HERE}.ByDispatch.dispatch()"
    settings.IDEMPOTENCY = {"REPLAY_THROUGH": [f"{HERE}.ByDispatch"]}
    assert unfollowed(ByDispatch.as_view(), "POST") is None


@pytest.mark.parametrize("name", OPEN)
def test_where_nothing_is_asked(send: Send, staff: User, name: str) -> None:
    """A replay is given where there is nothing to repeat."""
    assert send(f"open/{name}").status_code == 201
    withdraw(staff)
    assert send(f"open/{name}")["Idempotent-Replayed"] == "true"


def test_no_route_of_the_admin_is_lost() -> None:
    """The admin's views are bound methods of the model admins and of the site, which also stores
    functions.
    """
    views = list(routes_of(admin.site.urls[0]))
    assert len(views) > 10
    assert [
        (view, layer) for view in views if (layer := unfollowed(view, "POST")) is not None
    ] == []


def test_a_site_that_checks_more() -> None:
    """Its `admin_view()` is code of the project, wherever Django calls it."""
    site = StricterSite()
    views = [*routes_of(site.get_urls()), *routes_of(Clerks(User, site).get_urls())]
    assert {view for view in views if unfollowed(view, "POST") is None} == {site.login}


def routes_of(patterns: Any) -> Iterator[Any]:
    for each in patterns:
        if isinstance(each, URLResolver):
            yield from routes_of(each.url_patterns)
        else:
            yield each.callback


@pytest.mark.parametrize("name", BELOW)
def test_the_decorator_below_is_the_way_out(send: Send, staff: User, name: str) -> None:
    """The checks above the decorator are repeated each time, whatever they are."""
    assert [send(f"below/{name}").status_code, send(f"below/{name}")["Idempotent-Replayed"]] == [
        201,
        "true",
    ]
    withdraw(staff)
    assert (send(f"below/{name}").status_code, effects()) == (403, 1)
