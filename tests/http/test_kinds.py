"""Kinds of views: found by the installed apps; what is known about a view is asked
once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import ninja.openapi.views
import ninja.operation
import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import ResolverMatch, path
from django.views import View
from ninja import NinjaAPI
from ninja.decorators import decorate_view
from pytest_django import Settings

from django_idempotency import Policy, idempotency_exempt, idempotent
from django_idempotency.checks.routes import check_routes
from django_idempotency.contrib.ninja.kind import Ninja
from django_idempotency.errors import ConfigurationError
from django_idempotency.http import kinds
from django_idempotency.http.markers import Mark
from django_idempotency.http.views import route_of


@pytest.fixture
def without_ninja(settings: Settings) -> None:
    """Take the app out of INSTALLED_APPS."""
    settings.INSTALLED_APPS = [
        app for app in settings.INSTALLED_APPS if app != "django_idempotency.contrib.ninja"
    ]


def test_a_kind_needs_its_app(settings: Settings) -> None:
    """Installed apps are asked, in their order."""
    assert Ninja in [type(kind) for kind in kinds.kinds()]
    settings.INSTALLED_APPS = ["django_idempotency", "django_idempotency.contrib.ninja"]
    assert [type(kind) for kind in kinds.kinds()] == [Ninja]
    settings.INSTALLED_APPS = ["django_idempotency"]
    assert kinds.kinds() == []


def test_before_the_apps_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that the settings import may have a guarded view: it is of no kind, unless a package
    is imported that an optional app may know.
    """
    monkeypatch.setattr(apps, "apps_ready", False)
    with pytest.raises(ImproperlyConfigured, match=r"apps were ready.*ninja.*the URLconf"):
        idempotent()(view)
    monkeypatch.setattr(kinds, "ADAPTED", ())
    assert kinds.kinds() == []


def operation() -> Any:
    """Make the view of an operation of ninja."""
    path = ninja.operation.PathView()
    path.add_operation("/", ["POST"], lambda request: None)
    return path.get_view()


@pytest.mark.usefixtures("without_ninja")
def test_where_ninja_would_not_call_the_guard_it_is_refused() -> None:
    """At import, as with the app: Ninja has the bare function by then."""
    fresh = NinjaAPI(urls_namespace="without_the_app")
    operation = fresh.post("/charges")(view)
    with pytest.raises(ImproperlyConfigured, match="optional app for ninja to INSTALLED_APPS"):
        idempotent()(operation)
    with pytest.raises(ImproperlyConfigured, match="optional app for ninja to INSTALLED_APPS"):
        fresh.post("/refunds")(decorate_view(idempotent())(view))


def view(request: HttpRequest) -> None: ...


class Graph(View):
    """Stands for a view of a package, by its module."""

    __module__ = "graphene_django.views"


class OfProject(Graph):
    """A project's subclass."""

    __module__ = "shop.views"


class Awaiting(Graph):
    """Stands for an async view of adrf."""

    __module__ = "adrf.views"

    def initialize_request(self) -> None: ...

    async def post(self, request: HttpRequest) -> None: ...


class Synchronous(View):
    """A sync view of adrf is guarded as any of REST framework."""

    __module__ = "adrf.views"

    def initialize_request(self) -> None: ...


def test_a_view_whose_app_is_missing(settings: Settings) -> None:
    """It is known by the package of its function, its class or a base; and no other is."""
    settings.INSTALLED_APPS = ["django_idempotency"]
    for view, package in (
        (operation(), "ninja"),
        (Graph, "graphene_django"),
        (Graph.as_view(), "graphene_django"),
        (OfProject.as_view(), "graphene_django"),
        (Awaiting, "adrf"),
    ):
        kind = kinds.kind_of(view)
        assert isinstance(kind, kinds.Unknown)
        assert kind.called == f"a view of {package}"
        assert f"for {package} to INSTALLED_APPS" in kind.fix
    for view in (View.as_view(), Synchronous, test_a_kind_needs_its_app):
        assert kinds.kind_of(view) is kinds.ORDINARY


@pytest.mark.usefixtures("without_ninja")
def test_a_package_whose_app_is_there_is_known(settings: Settings) -> None:
    """What its kind does not own, such as a page with the schema, is an ordinary view."""
    assert isinstance(kinds.kind_of(operation()), kinds.Unknown)
    settings.INSTALLED_APPS += ["django_idempotency.contrib.ninja"]
    assert isinstance(kinds.kind_of(operation()), Ninja)
    assert kinds.kind_of(lambda request: None) is kinds.ORDINARY
    schema = ninja.openapi.views.openapi_json
    assert kinds.kind_of(schema) is kinds.ORDINARY


def test_what_would_guard_it_raises(settings: Settings) -> None:
    """The decorator refuses its class and its methods; what runs later refuses the request."""
    settings.INSTALLED_APPS = ["django_idempotency"]
    with pytest.raises(ImproperlyConfigured, match="graphene_django to INSTALLED_APPS"):
        idempotent(OfProject)

    class Late(OfProject):
        @idempotent()
        def post(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    with pytest.raises(ImproperlyConfigured, match="graphene_django to INSTALLED_APPS"):
        Late.as_view()
    kind = kinds.kind_of(Awaiting)
    assert isinstance(kind, kinds.Unknown)
    with pytest.raises(ImproperlyConfigured, match="adrf to INSTALLED_APPS"):
        kind.dispatch(Awaiting(), HttpRequest(), None, int)
    with pytest.raises(ImproperlyConfigured, match="adrf to INSTALLED_APPS"):
        kind.arun_inside(HttpRequest(), Policy(), int)


@pytest.mark.usefixtures("without_ninja")
@pytest.mark.parametrize("key", ["", "k1"])
def test_a_function_inside_it(key: str, rf: RequestFactory) -> None:
    """A keyed call is refused, since what the package checks may come later; another runs."""
    calls = []

    @idempotent()
    def pay(request: HttpRequest) -> HttpResponse:
        calls.append(request)
        return HttpResponse()

    request = rf.post("/", headers={"Idempotency-Key": key} if key else {})
    request.resolver_match = ResolverMatch(operation(), (), {})
    if key:
        with pytest.raises(ConfigurationError, match="ninja to INSTALLED_APPS"):
            pay(request)
    else:
        pay(request)
    assert len(calls) == (0 if key else 1)


@pytest.mark.usefixtures("without_ninja")
def test_under_the_middleware(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """A keyed request is left unguarded and reported; with REQUIRED it raises. The check says which."""
    urlconf = ModuleType("urlconf")
    urlconf.__dict__["urlpatterns"] = [path("", operation())]
    settings.ROOT_URLCONF = urlconf
    (found,) = check_routes()
    assert found.id == "django_idempotency.W084"
    assert "ninja to INSTALLED_APPS" in str(found.hint)
    client = Client(raise_request_exception=False)
    client.post("/", headers={"Idempotency-Key": "k1"})
    assert "the optional app for that is not installed" in caplog.text
    settings.IDEMPOTENCY = {"REQUIRED": True}
    assert [each.id for each in check_routes()] == ["django_idempotency.E082"]
    with pytest.raises(ConfigurationError, match="ninja to INSTALLED_APPS"):
        Client().post("/", headers={"Idempotency-Key": "k1"})


def test_a_view_is_asked_once() -> None:
    """The second request finds the answer of the first; after a change of settings it is asked
    again.
    """

    def pay(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    first = route_of(pay, "POST")
    assert route_of(pay, "POST") is first
    idempotency_exempt(pay)
    setting_changed.send(sender=None, setting="ROOT_URLCONF", value=None, enter=True)
    assert (first.exempt, route_of(pay, "POST").exempt) == ("", "@idempotency_exempt")


def test_views_that_are_equal_are_not_the_same() -> None:
    """What is known of one is not said of another, and a view need have no hash."""

    @dataclass
    class View:
        idempotency_mark: Any = field(default=None, compare=False)

        def __call__(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    exempt, other = View(idempotency_mark=Mark(exempt=True)), View()
    assert exempt == other
    assert route_of(exempt, "POST").exempt == "@idempotency_exempt"
    assert route_of(other, "POST").exempt == ""


def test_an_async_function_inside_a_view_of_no_known_kind() -> None:
    """Its guard would not know how that view handles an exception: it refuses, and says what to
    do.
    """

    @idempotent(guarantee="lease")
    async def pay(request: Any) -> HttpResponse:
        return HttpResponse()

    request = SimpleNamespace(_request=HttpRequest(), parser_context={"view": object()})
    with pytest.raises(ConfigurationError, match="An async function below @api_view"):
        async_to_sync(pay)(request)
