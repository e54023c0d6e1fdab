"""The views of a URLconf: terms that a view cannot have are an error, terms that cannot be proven
are not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.decorators import login_required
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import cache_page, never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_safe
from pytest_django import Settings
from rest_framework.decorators import action, api_view
from rest_framework.generics import ListAPIView, ListCreateAPIView
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import (
    GenericViewSet,
    ModelViewSet,
    ReadOnlyModelViewSet,
    ViewSet,
    ViewSetMixin,
)

from django_idempotency import (
    LongestRun,
    OnTakeover,
    Policy,
    StatusOnly,
    idempotency_exempt,
    idempotent,
)
from django_idempotency.checks import routes
from django_idempotency.contrib.limits import Suspect
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.core.records import MISSING
from django_idempotency.engine.extensions import Extension
from django_idempotency.http.markers import view_class
from django_idempotency.http.views import route_of
from django_idempotency.rest_framework import IdempotentViewMixin

from .conftest import Configure, hints

OURS = "django_idempotency.middleware.IdempotencyMiddleware"
OUTSIDE = "tests.checks.backends.OutsideStore"
STORES = {
    "default": {"BACKEND": "django_idempotency.stores.orm.ORMStore"},
    "outside": {"BACKEND": OUTSIDE},
}


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


async def awaiting(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Awaiting(View):
    async def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class AwaitingReads(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class Awaited(View):
    @idempotent(guarantee="lease")
    async def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class Create(APIView):
    def post(self, request: Any) -> Response:
        return Response()


class MixinFirst(IdempotentViewMixin, Create):
    pass


class KeepsSubclassesToItself:
    """Its subclasses are made without the mixin's __init_subclass__(), which would refuse them."""

    def __init_subclass__(cls) -> None:
        """Does not call super()."""


class MixinLast(KeepsSubclassesToItself, Create, IdempotentViewMixin):
    pass


class MixinBetween(KeepsSubclassesToItself, ViewSetMixin, IdempotentViewMixin, APIView):
    """ViewSetMixin.as_view() does not call super()."""

    def create(self, request: Any) -> Response:
        return Response()


class MixinLastSet(KeepsSubclassesToItself, GenericViewSet, IdempotentViewMixin):
    def create(self, request: Any) -> Response:
        return Response()


class MixinFirstSet(IdempotentViewMixin, ModelViewSet):
    pass


class MixinBehindOwn(IdempotentViewMixin, View):
    """Not a view of DRF."""


class OwnDispatch:
    """A project's own mixin may come before ours: it calls super()."""

    def dispatch(self, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(*args, **kwargs)  # type: ignore[misc]


class MixinBehindOwnDispatch(OwnDispatch, IdempotentViewMixin, Create):
    pass


class NoPolicy(MixinFirst):
    idempotency = {"ttl": 5}  # type: ignore[assignment] # noqa: RUF012 - the mistake


class PolicyPerRequest(MixinFirst):
    idempotency = None  # type: ignore[assignment]

    def get_idempotency_policy(self) -> Policy:
        return Policy()


class PolicyProperty(MixinFirst):
    @property
    def idempotency(self) -> Policy:  # type: ignore[override]
        return Policy()


@api_view(["POST"])
@idempotent()
def below(request: Any) -> Response:
    return Response()


@idempotent()
@api_view(["POST"])
def above(request: Any) -> Response:
    return Response()


@api_view(["GET"])
def reads(request: Any) -> Response:
    return Response()


def staff_only(view: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return view(request, *args, **kwargs)

    return wrapper


def made(name: str, *bases: type[Any], **members: Any) -> Any:
    """Make a class, as a class statement would."""
    return type(name, bases, members)


def with_policy(**fields: Any) -> Any:
    return made("Policed", MixinFirst, idempotency=Policy(**fields)).as_view()


def each(*views: Any) -> pytest.MarkDecorator:
    """Run a test once for each view."""
    return pytest.mark.parametrize("view", views, ids=map(str, range(len(views))))


@pytest.fixture
def check(settings: Settings) -> Callable[..., dict[str, str]]:
    """Return a function that checks a URLconf of some views, with or without the middleware."""

    def check(*views: Any, middleware: bool = True) -> dict[str, str]:
        settings.MIDDLEWARE = [OURS] if middleware else []
        urlconf = ModuleType("urlconf")
        urlconf.urlpatterns = [  # type: ignore[attr-defined]
            view if isinstance(view, (URLPattern, URLResolver)) else path(f"{number}/", view)
            for number, view in enumerate(views)
        ]
        settings.ROOT_URLCONF = urlconf
        return hints(routes.check_routes())

    return check


Check = Callable[..., dict[str, str]]

# ----------------------------------------------------------------------------- under the middleware


@each(awaiting, login_required(awaiting), require_http_methods(["POST"])(awaiting))
def test_atomic_asked_of_an_async_view(check: Check, view: Any) -> None:
    """E030: the project's guarantee is atomic, and the middleware guards this view."""
    assert '@idempotent(guarantee="lease")' in check(view)["E030"]


def test_atomic_asked_of_an_async_class(check: Check) -> None:
    """The same for a class with async handlers."""
    assert "@idempotency_exempt" in check(Awaiting.as_view())["E030"]


@each(
    plain,
    idempotent(guarantee="lease")(awaiting),
    login_required(idempotent(guarantee="lease")(awaiting)),
    idempotency_exempt(functools.wraps(awaiting)(staff_only(awaiting))),
    require_GET(awaiting),
    require_safe(awaiting),
    require_http_methods(["GET", "HEAD"])(awaiting),
    AwaitingReads.as_view(),
    Awaited.as_view(),
)
def test_an_async_view_that_asks_for_less_is_silent(check: Check, view: Any) -> None:
    """An async view with an entry point of its own, an exempt one, or one with nothing to guard is
    silent.
    """
    assert check(view) == {}


def test_async_views_are_free_without_the_middleware(check: Check, configure: Configure) -> None:
    """Async views are silent without the middleware, and with a project guarantee that they can
    keep.
    """
    assert check(awaiting, Awaiting.as_view(), middleware=False) == {}
    configure(GUARANTEE="lease")
    assert check(awaiting, Awaiting.as_view()) == {}


@pytest.mark.parametrize("decorator", [staff_only, login_required, cache_page(60)])
def test_a_decorated_route_of_drf(check: Check, decorator: Any) -> None:
    """E033: rebuilding the view from `.cls` would skip the decorator."""
    assert (
        "IdempotentViewMixin first in the bases of Create"
        in check(decorator(Create.as_view()))["E033"]
    )


def test_what_as_view_has_done_already(check: Check) -> None:
    """`csrf_exempt()` around it changes nothing."""
    assert check(csrf_exempt(Create.as_view())) == {}


def test_a_decorated_viewset(check: Check) -> None:
    """Each callback of a viewset is a decorated route; the class is reported once."""
    decorated = [
        staff_only(ModelViewSet.as_view({method: action}))
        for method, action in (("post", "create"), ("delete", "destroy"))
    ]
    assert list(check(*decorated)) == ["E033"]


@each(
    Create.as_view(),
    ListCreateAPIView.as_view(),
    ModelViewSet.as_view({"get": "list", "post": "create"}),
    above,
    below,
    staff_only(MixinFirst.as_view()),
    staff_only(above),
    idempotency_exempt(staff_only(Create.as_view())),
    cache_page(60)(ListAPIView.as_view()),  # nothing to guard
    cache_page(60)(ReadOnlyModelViewSet.as_view({"get": "list"})),
    cache_page(60)(reads),
)
def test_a_route_of_drf_that_works_is_silent(check: Check, view: Any) -> None:
    """A route that is bare, exempt, has its own entry point or has nothing to guard is silent."""
    assert check(view) == {}


def test_a_decorated_route_is_free_without_the_middleware(check: Check) -> None:
    """Without the middleware nothing would lend the view the mixin."""
    assert check(staff_only(Create.as_view()), middleware=False) == {}


LEASE = Policy(guarantee="lease")


class AsyncCreate(APIView):
    """DRF does not await it; adrf would."""

    async def post(self, request: Any) -> Response:
        return Response()


@each(
    made("Mixed", IdempotentViewMixin, AsyncCreate, idempotency=LEASE).as_view(),
    made(
        "MixedSet", IdempotentViewMixin, ViewSet, idempotency=LEASE, create=AsyncCreate.post
    ).as_view({"post": "create"}),
)
@pytest.mark.parametrize("middleware", [True, False])
def test_async_handlers_of_drf_itself(check: Check, view: Any, middleware: bool) -> None:
    """E067: a guard would close before the handlers have run."""
    assert list(check(view, middleware=middleware)) == ["E067"]


# ------------------------------------------------------------------ what cannot carry the decorator


class Hidden(View):
    @method_decorator(login_required)
    @idempotent()
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class HiddenAction(ViewSet):
    @action(detail=False, methods=["post"])
    @idempotent()
    def charge(self, request: Any) -> Response:
        return Response()


class Static:
    @staticmethod
    @idempotent()
    def pay(request: HttpRequest) -> HttpResponse:
        return HttpResponse()


@each(Hidden.as_view(), HiddenAction.as_view({"post": "charge"}), Static.pay)
def test_a_decorator_that_guards_nothing(check: Check, view: Any) -> None:
    """E069: found on a handler, on an action and on a function, with the route's path."""
    assert "Put @idempotent()" in check(view)["E069"]
    assert "(/0/)" in routes.check_routes()[0].msg


# ---------------------------------------------------------------------------------------- the bases


@each(
    MixinLast.as_view(),
    MixinBetween.as_view({"post": "create"}),
    MixinLastSet.as_view({"post": "create"}),
    made("Derived", MixinLast).as_view(),
)
@pytest.mark.parametrize("middleware", [True, False])
def test_the_mixin_behind_drf(check: Check, view: Any, middleware: bool) -> None:
    """E031: DRF's own dispatch() or as_view() comes first, and does not call super()."""
    found = check(view, middleware=middleware)
    assert "Put IdempotentViewMixin first in its bases." in found["E031"]
    assert list(found) == ["E031"]


@each(
    MixinFirst.as_view(),
    MixinFirstSet.as_view({"post": "create"}),
    MixinBehindOwnDispatch.as_view(),
    PolicyPerRequest.as_view(),
    PolicyProperty.as_view(),
    idempotent()(made("Adapted", Create)).as_view(),
)
def test_the_mixin_first_is_silent(check: Check, view: Any) -> None:
    """The mixin before APIView, behind a project's own mixin that calls super(), is silent."""
    assert check(view) == {}


def test_the_mixin_on_a_view_of_django(check: Check) -> None:
    """E032: the mixin needs DRF's request."""
    assert "@idempotent() on the class" in check(MixinBehindOwn.as_view())["E032"]


def handler(self: Any, request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Unread(Create):
    policy = Policy(required=True)


@each(Unread.as_view(), made("UnreadPlain", View, post=handler, idempotency=Policy()).as_view())
@pytest.mark.parametrize("middleware", [True, False])
def test_a_policy_without_a_guard(check: Check, view: Any, middleware: bool) -> None:
    """E036: a class has a policy, and no guard that reads it."""
    assert "Put IdempotentViewMixin first" in check(view, middleware=middleware)["E036"]


@each(
    require_GET(idempotent()(plain)),
    idempotent(methods=["PUT"])(require_http_methods(["POST", "DELETE"])(plain)),
    idempotent()(made("Reading", View, get=handler)).as_view(),
    idempotent()(made("ReadingRest", APIView, get=handler)).as_view(),
    made(
        "ReadingMixed", IdempotentViewMixin, APIView, get=handler, idempotency=Policy(required=True)
    ).as_view(),
    made("OnlyPost", IdempotentViewMixin, Create, idempotency=Policy(methods=["PATCH"])).as_view(),
    idempotent(methods=["PATCH"])(made("OnlyPosting", View, post=handler)).as_view(),
)
def test_a_guard_that_guards_nothing(check: Check, view: Any) -> None:
    """E039: the view takes no method that its policy guards."""
    assert "Let the view take a method that is guarded" in check(view)["E039"]


class ReadsOnly(MixinFirstSet):
    idempotency = Policy(required=True)


@each(
    made("ReadingBelow", IdempotentViewMixin, APIView, get=handler).as_view(),
    made(
        "ReadingBelowToo",
        idempotent()(made("Posting", View, post=handler)),
        get=handler,
        http_method_names=["get"],
    ).as_view(),
    ReadsOnly.as_view({"get": "list"}),
    made(
        "Both", IdempotentViewMixin, Create, put=handler, idempotency=Policy(methods=["PUT"])
    ).as_view(),
    made("Chosen", PolicyPerRequest, get=handler).as_view(),
)
def test_a_guard_for_others_is_silent(check: Check, view: Any) -> None:
    """A guard that a class has inherited, or that another route or method needs, is silent."""
    assert check(view) == {}


def test_an_invalid_policy(check: Check) -> None:
    """E038: a dict is not a Policy."""
    assert "idempotency = Policy(" in check(NoPolicy.as_view())["E038"]


@each(
    never_cache(with_policy()),
    never_cache(with_policy(guarantee="lease")),
    login_required(idempotent()(api_view(["POST"])(plain))),
    staff_only(idempotent()(plain)),
    above,
    below,
)
def test_under_atomic_requests(check: Check, monkeypatch: pytest.MonkeyPatch, view: Any) -> None:
    """Each guard joins the transaction, and a lease is excluded from it, wherever it stands: there
    is nothing to warn of.
    """
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    assert check(view, middleware=False) == {}


# ------------------------------------------------------------------------------------- the policies


@pytest.mark.parametrize(
    ("alias", "codes"),
    [
        ("over_outside", ["E035"]),  # a front does not make a store join a transaction
        ("cached", ["E035"]),
        ("over_table", []),  # nor does it keep one from it
        ("twice", []),
    ],
)
def test_atomic_is_the_innermost_stores_to_give(
    check: Check, configure: Configure, settings: Settings, alias: str, codes: list[str]
) -> None:
    """It sees through all layers."""
    settings.CACHES = {
        "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    }
    layered = "django_idempotency.stores.layered.LayeredStore"
    configure(
        STORES={
            **STORES,
            "redis": {"BACKEND": "django_idempotency.stores.redis.RedisStore"},
            "other": {
                "BACKEND": "django_idempotency.stores.redis.RedisStore",
                "OPTIONS": {"prefix": "other"},
            },
            "over_outside": {
                "BACKEND": layered,
                "OPTIONS": {"front": "other", "authority": "outside"},
            },
            "cached": {"BACKEND": OUTSIDE, "OPTIONS": {"local_cache": True}},
            "over_table": {
                "BACKEND": layered,
                "OPTIONS": {"front": "redis", "authority": "default"},
            },
            "twice": {
                "BACKEND": layered,
                "OPTIONS": {"front": "redis", "authority": "over_table", "local_cache": True},
            },
        }
    )
    assert list(check(with_policy(store=alias))) == codes


@pytest.mark.parametrize(
    ("fields", "typed"),
    [
        ({"lease": 86400, "guarantee": "lease"}, "make lease shorter than ttl"),  # TTL is 86400
        ({"ttl": 0.5}, 'make "CLAIM_LEASE" (1) shorter'),  # CLAIM_LEASE is 1
        ({"store": "outsid"}, "It has 'default', 'outside'. Type one"),
        ({"store": "outside"}, 'guarantee="lease"'),
        ({"extensions": [OnTakeover(print)]}, 'guarantee="lease"'),
        ({"extensions": [LongestRun(600)]}, 'guarantee="lease"'),
        # LEASE is 30.
        (
            {"extensions": [LongestRun(30)], "guarantee": "lease"},
            "make LongestRun longer than lease",
        ),
        ({"extensions": [UndoOn(LookupError)]}, 'guarantee="lease"'),
        ({"lease": 60}, 'guarantee="lease"'),
    ],
)
@pytest.mark.parametrize("middleware", [True, False])
def test_a_policy_that_cannot_be_kept(
    check: Check, configure: Configure, *, fields: dict[str, Any], typed: str, middleware: bool
) -> None:
    """E035 says what to type.

    Found on the mixin, on the decorator, below other decorators, on classes and below @api_view.
    """
    configure(STORES=STORES)
    for view in (
        with_policy(**fields),
        idempotent(**fields)(Create.as_view()),
        login_required(idempotent(**fields)(plain)),
        idempotent(**fields)(
            made("Class", View, post=lambda self, request: HttpResponse())
        ).as_view(),
        api_view(["POST"])(idempotent(**fields)(lambda request: Response())),
    ):
        assert list(check(view, middleware=middleware)) == ["E035"]
        assert typed in routes.check_routes()[0].msg


def test_results_of_steps_under_a_policy_that_stores_none(check: Check) -> None:
    """E133: a step's result is stored until the operation has ended, so it must be sealed."""
    view = with_policy(extensions=[UndoOn(LookupError), StatusOnly()], guarantee="lease")
    assert "ENCRYPTION_KEYS" in check(view)["E133"]


def test_steps_of_the_settings_under_a_policy_that_stores_none(
    check: Check, settings: Settings
) -> None:
    """E133, too, where the setting EXTENSIONS says it, and where the keys only open."""
    pytest.importorskip("cryptography")
    settings.IDEMPOTENCY = {
        **settings.IDEMPOTENCY,
        "EXTENSIONS": [UndoOn(LookupError)],
        "ENCRYPTION_KEYS": [None, "x" * 43 + "="],
    }
    view = with_policy(extensions=[StatusOnly()], guarantee="lease")
    assert "E133" in check(view)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"ttl": 10, "lease": 5, "guarantee": "lease"},
        {"store": "outside", "guarantee": "lease"},
        {"guarantee": "lease", "ttl": 31},
    ],
)
def test_a_policy_that_can_be_kept_is_silent(
    check: Check, configure: Configure, fields: dict[str, Any]
) -> None:
    """A policy that works together with the settings is silent."""
    configure(STORES=STORES)
    assert check(with_policy(**fields), login_required(idempotent(**fields)(plain))) == {}


class Impossible(Extension):
    """Is at odds with every policy, once the settings are known."""

    def contradiction(self, says: Callable[[str], Any]) -> str | None:
        return None if says("ttl") is MISSING else "It is not possible. Leave it out."


def test_a_plan_that_does_not_compile(check: Check) -> None:
    """What no other check knows is found by compiling the plan of each route."""
    view = idempotent(extensions=[Impossible()])(plain)
    assert "It is not possible" in check(view)["E035"] + routes.check_routes()[0].msg


def test_what_clients_that_share_a_scope_share(check: Check, configure: Configure) -> None:
    """A refusal would name another's request."""
    configure(ANONYMOUS="shared")
    assert list(check(idempotent(extensions=[Suspect("body.card", refuse=True)])(plain))) == [
        "E035"
    ]
    assert "refuse=False" in routes.check_routes()[0].msg
    assert check(idempotent(extensions=[Suspect("body.card")])(plain)) == {}


def test_settings_come_first(check: Check, configure: Configure) -> None:
    """A mistake in IDEMPOTENCY is reported once there, not again for every route."""
    configure(TTL=-1)
    assert check(with_policy(lease=5), MixinLast.as_view()) == {}


# ------------------------------------------------------------------------------------------- EXEMPT


@pytest.mark.parametrize(
    "entry",
    [
        "namespace:legacy",
        "namespace:legacy:inner",
        f"module:{__name__}",
        "path:/legacy/inner/a/",
        "regex:/a/$",
    ],
)
def test_an_exempt_include_has_no_errors(check: Check, configure: Configure, entry: str) -> None:
    """A third-party include may hold async views and decorated DRF views that cannot be edited:
    EXEMPT covers them.
    """
    inner = include(([path("a/", awaiting)], "inner"))
    views = (path("legacy/", include(([path("inner/", inner)], "legacy"))),)
    assert list(check(*views)) == ["E030"]
    configure(EXEMPT=[entry])
    assert check(*views) == {}


def test_an_entry_for_one_of_two_routes(check: Check, configure: Configure) -> None:
    """The view is not exempt where the other route leads to it, nor where a function decides."""
    views = (path("a/", awaiting), path("b/<int:pk>/", awaiting))
    for entry in ("path:/a/", r"regex:^/b/\d+/$", plain):
        configure(EXEMPT=[entry])
        assert list(check(*views)) == ["E030"]
    configure(EXEMPT=["path:/a/", "path:/b/"])
    assert check(*views) == {}


# -------------------------------------------------------------------------------------- the URLconf


def test_every_view_is_reported_once(check: Check) -> None:
    """A view is reported once, with two addresses, in nested and namespaced includes, and from a
    router.
    """
    router = SimpleRouter()
    router.register("things", MixinLastSet, basename="thing")
    nested = path(
        "a/", include(([path("b/", include([path("c/", awaiting)])), path("d/", awaiting)], "app"))
    )
    check(nested, awaiting, path("r/", include(router.urls)), path("admin/", admin.site.urls))
    (found,) = [
        message.msg for message in routes.check_routes() if message.id == "django_idempotency.E030"
    ]
    assert "(/a/b/c/)" in found


def test_a_urlconf_that_includes_itself(settings: Settings) -> None:
    """The check of a URLconf that includes itself ends."""
    settings.MIDDLEWARE = [OURS]
    urlconf = ModuleType("urlconf")
    urlconf.urlpatterns = []  # type: ignore[attr-defined]
    urlconf.urlpatterns += [path("again/", include(urlconf)), path("a/", awaiting)]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = urlconf
    assert list(hints(routes.check_routes())) == ["E030"]


@pytest.mark.parametrize(
    "urlconf", ["no.such.module", "tests.checks.broken_urls", "math", None, ""]
)
def test_a_broken_urlconf_is_djangos_to_report(settings: Settings, urlconf: str | None) -> None:
    """A URLconf that is missing, raises on import or lacks urlpatterns does not crash our
    checks.
    """
    settings.ROOT_URLCONF = urlconf
    assert routes.check_routes() == []


def test_what_can_be_read_of_a_broken_urlconf_is_checked(check: Check) -> None:
    """A broken include hides nothing else."""
    broken = URLResolver(path("", plain).pattern, "tests.checks.broken_urls")
    assert list(check(path("x/", include([broken])), awaiting)) == ["E030"]


@each(functools.partial(plain), type("Callable", (), {"__call__": plain})())
def test_callables_of_any_kind(check: Check, view: Any) -> None:
    """A partial or an instance has no name and is not a class."""
    assert check(view) == {}


class Remote:
    """A remote procedure proxy: it has every attribute that is asked for."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=201)

    def __getattr__(self, name: str) -> Remote:
        if name.startswith("__"):
            raise AttributeError(name)
        return Remote()


def dispatcher(name: str) -> Any:
    """Return a view with an attribute of its own that is named as Django's or DRF's."""

    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=201)

    setattr(view, name, OwnDispatch)
    return view


@each(dispatcher("cls"), dispatcher("view_class"), Remote())
def test_a_class_that_is_not_a_view(check: Check, view: Any) -> None:
    """A dispatcher's own `cls` or `view_class` is not Django's: it is checked like any other
    callable.
    """
    assert check(view) == {}
    assert view_class(view) is None
    assert not route_of(view, "post").exempt
    assert not route_of(view, "post").guards_itself
