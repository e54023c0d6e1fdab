"""manage.py idempotency_routes: what it says of a route is what a keyed request to that route
meets.
"""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path, re_path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_GET, require_POST
from ninja import NinjaAPI, Status
from pytest_django import Settings
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.routers import APIRootView, SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_idempotency import OnTakeover, Policy, Tombstones, idempotency_exempt, idempotent
from django_idempotency.checks.guards import GuardKind, terms
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.errors import ConfigurationError
from django_idempotency.http.exchange import HEADER
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect
from tests.support.dialects import DIALECTS

pytestmark = pytest.mark.django_db(transaction=True)

HERE = __name__
OURS = "django_idempotency.middleware.IdempotencyMiddleware"


def write() -> None:
    Effect.objects.create(label="written", idempotency_key="", attempt=0)


def plain(request: HttpRequest) -> HttpResponse:
    write()
    return HttpResponse(status=201)


def another(request: HttpRequest, kind: str = "") -> HttpResponse:
    return plain(request)


def elsewhere(request: HttpRequest) -> HttpResponse:
    return plain(request)


elsewhere.__module__ = "shop.webhooks.views"


@idempotency_exempt
def exempt(request: HttpRequest) -> HttpResponse:
    return plain(request)


async def awaited(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=201)


class Two(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return plain(request)

    def delete(self, request: HttpRequest) -> HttpResponse:
        return plain(request)


@idempotent(methods=("POST",), ttl=60)
class Decorated(Two):
    pass


class OneOfTwo(Two):
    @idempotent
    def post(self, request: HttpRequest) -> HttpResponse:
        return plain(request)


class Hidden(View):
    @method_decorator(login_required)
    @idempotent()
    def post(self, request: HttpRequest) -> HttpResponse:
        return plain(request)


class Rest(APIView):
    def post(self, request: Any) -> Response:
        write()
        return Response({}, status=201)


class Mixed(IdempotentViewMixin, Rest):
    @idempotency_exempt
    def put(self, request: Any) -> Response:
        return Response({})


class KeepsSubclassesToItself:
    """Its subclasses are made without the mixin's __init_subclass__(), which would refuse them."""

    def __init_subclass__(cls) -> None:
        """Does not call super()."""


class MixedLast(KeepsSubclassesToItself, Rest, IdempotentViewMixin):
    pass


class Deciding(IdempotentViewMixin, Rest):
    def get_idempotency_policy(self) -> Policy:
        return Policy(required=True)


class Charges(IdempotentViewMixin, ViewSet):
    idempotency = Policy(required=True)

    def list(self, request: Any) -> Response:
        return Response([])

    def create(self, request: Any) -> Response:
        write()
        return Response({}, status=201)


@api_view(["POST"])
@idempotent()
def below(request: Any) -> Response:
    write()
    return Response({}, status=201)


@api_view(["POST"])
def function(request: Any) -> Response:
    write()
    return Response({}, status=201)


def ninja() -> NinjaAPI:
    api = NinjaAPI(urls_namespace="tests-routes")

    @api.post("/guarded/", response={201: None})
    @idempotent(required=True)
    def guarded(request: HttpRequest) -> Any:
        write()
        return Status(201, None)

    @api.post("/bare/", response={201: None})
    def bare(request: HttpRequest) -> Any:
        write()
        return Status(201, None)

    return api


router = SimpleRouter()
router.register("charges", Charges, basename="charge")


@pytest.fixture(autouse=True)
def urlconf(settings: Settings) -> None:
    settings.ROOT_URLCONF = found = ModuleType("urlconf")
    found.urlpatterns = [  # type: ignore[attr-defined]
        path("plain/", plain, name="plain"),
        path("plain/", another),  # shadowed
        path("posted/", require_POST(another)),
        path("read/", require_GET(another)),
        path("exempt/", exempt),
        path("awaited/", awaited),
        path("leased/", idempotent(guarantee="lease")(awaited)),
        path("two/", Two.as_view()),
        path("decorated/", Decorated.as_view()),
        path("one-of-two/", OneOfTwo.as_view()),
        re_path("^rest/$", Rest.as_view()),
        path("rest-behind-login/", login_required(Rest.as_view())),
        path("hidden/", Hidden.as_view()),
        path("mixed/", Mixed.as_view()),
        path("mixed-last/", MixedLast.as_view()),
        path("deciding/", Deciding.as_view()),
        path("below/", below),
        path("above/", idempotent()(function)),
        path("api/", include((router.urls, "api"), namespace="v1")),
        path("included/", include(([path("it/", Two.as_view(), name="it")], "legacy"))),
        path("webhooks/", include([path("stripe/", another), path("<kind>/", another)])),
        path("shop/", elsewhere),
        path("ninja/", ninja().urls),
    ]
    settings.IDEMPOTENCY = {
        "EXEMPT": ["namespace:legacy", "module:shop.webhooks", "path:/webhooks/stripe/"]
    }


def json_of(*arguments: str) -> str:
    out = StringIO()
    call_command("idempotency_routes", "--json", *arguments, stdout=out)
    return out.getvalue()


def listed(*arguments: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(json_of(*arguments))
    return rows


def meet(method: str, url: str) -> tuple[list[str | None], int]:
    """Send a keyed request twice; return what each response says, and how many effects there
    were.
    """
    Effect.objects.all().delete()
    key = str(uuid4())
    client = Client()
    client.login(username="admin", password="password")
    said = [
        client.generic(method, url, headers={"Idempotency-Key": key}).get(HEADER) for _ in range(2)
    ]
    return said, Effect.objects.count()


def test_the_report_matches_what_requests_meet(admin_user: Any) -> None:
    """In each row and for each method, guarded means one effect; anything else is reported as
    unguarded, or raises.
    """
    checked = 0
    for row in listed():
        for method in row["methods"] or ["POST"]:
            url = row["path"].replace("<kind>", "other")
            match GuardKind(row["guard"]):
                case GuardKind.MIXIN | GuardKind.DECORATOR | GuardKind.MIDDLEWARE:
                    effects = int(
                        row["view"].startswith((HERE, "shop.")) and "awaited" not in row["view"]
                    )
                    again = "refused" if "replays are refused" in row["why"] else "replayed"
                    assert meet(method, url) == (["created", again], effects), row
                case GuardKind.EXEMPT | GuardKind.NOTHING:
                    assert meet(method, url)[0] == ["unguarded"] * 2, row
                case GuardKind.ERROR if "MixedLast" in row["view"]:
                    assert meet(method, url)[0] == ["unguarded"] * 2, row
                case GuardKind.ERROR:
                    with pytest.raises((ConfigurationError, ImproperlyConfigured)):
                        meet(method, url)
                case GuardKind.SAFE:
                    assert meet(method, url)[1] == 0, row
                case GuardKind.SHADOWED:
                    continue
            checked += 1
    assert checked > 25


def test_each_route_and_its_guard() -> None:
    """The table covers nested includes, namespaces and methods with another guard, and gives the
    reasons.
    """
    found = {
        (row["path"], ",".join(row["methods"])): (row["guard"], row["why"].partition(" ")[0])
        for row in listed()
        if row["guard"] != "shadowed"
    }
    every = "POST,PUT,PATCH,DELETE"
    assert found == {
        ("/plain/", every): ("middleware", ""),
        ("/posted/", "POST"): ("middleware", ""),
        ("/read/", ""): ("safe", ""),
        ("/exempt/", every): ("exempt", "@idempotency_exempt"),
        ("/awaited/", every): ("error", f"{HERE}.awaited"),
        ("/leased/", every): ("decorator", ""),
        ("/two/", "POST,DELETE"): ("middleware", ""),
        ("/decorated/", "POST"): ("decorator", ""),
        ("/decorated/", "DELETE"): ("nothing", "the"),
        ("/one-of-two/", "POST"): ("decorator", ""),
        ("/one-of-two/", "DELETE"): ("middleware", ""),
        ("/rest/", "POST"): ("middleware", ""),
        ("/rest-behind-login/", "POST"): ("error", "The"),
        ("/hidden/", "POST"): ("error", f"{HERE}.Hidden"),
        ("/mixed/", "POST"): ("mixin", ""),
        ("/mixed/", "PUT"): ("exempt", "@idempotency_exempt"),
        ("/mixed-last/", "POST"): ("error", f"{HERE}.MixedLast"),
        ("/deciding/", "POST"): ("mixin", ""),
        ("/below/", "POST"): ("decorator", ""),
        ("/above/", "POST"): ("decorator", ""),
        ("/api/charges/", "POST"): ("mixin", ""),
        ("/included/it/", "POST,DELETE"): ("exempt", "EXEMPT:"),
        ("/webhooks/stripe/", every): ("exempt", "EXEMPT:"),
        ("/webhooks/<kind>/", every): ("middleware", "unless"),
        ("/shop/", every): ("exempt", "EXEMPT:"),
        ("/ninja/guarded/", "POST"): ("decorator", ""),
        ("/ninja/bare/", "POST"): ("nothing", "the"),
        # Ninja does not say that these only read.
        ("/ninja/openapi.json", every): (
            "middleware",
            "its",
        ),
        ("/ninja/docs", every): ("middleware", "its"),
        ("/ninja/", every): ("middleware", "its"),
    }
    assert [row["path"] for row in listed() if row["guard"] == "shadowed"] == ["/plain/"]


def test_names_and_terms() -> None:
    """Names include their namespaces; a policy shows what differs from the settings."""
    rows = {row["path"]: row for row in listed()}
    assert (rows["/api/charges/"]["name"], rows["/included/it/"]["name"]) == (
        "v1:charge-list",
        "legacy:it",
    )
    assert rows["/api/charges/"]["terms"] == {
        "guarantee": "atomic",
        "store": "default",
        "required": True,
    }
    decorated = next(row for row in listed("decorated") if row["methods"] == ["POST"])
    assert (decorated["terms"]["ttl"], decorated["terms"]["methods"]) == (60, ["POST"])
    assert rows["/below/"]["view"] == f"{HERE}.below"


def test_exceptions_by_their_names() -> None:
    assert terms(Policy(guarantee="lease", extensions=[UndoOn(ConfigurationError)]))[
        "extensions"
    ] == ["UndoOn(ConfigurationError)"]


def test_a_route_that_only_observes(settings: Settings) -> None:
    """Whoever reads the list must not think that its guards are active."""
    settings.IDEMPOTENCY = {"MODE": "django_idempotency.contrib.observe.OBSERVE"}
    rows = {row["path"]: row for row in listed()}
    assert rows["/api/charges/"]["terms"]["mode"] == "observe"


@pytest.mark.parametrize(("required", "guard"), [(False, "nothing"), (True, "error")])
def test_a_key_in_the_body(settings: Settings, required: bool, guard: str) -> None:
    """The middleware looks into no body, so it guards no view."""
    settings.IDEMPOTENCY = {"PROFILE": DIALECTS["square"], "REQUIRED": required}
    found = {row["path"]: row for row in listed()}
    assert "middleware" not in {row["guard"] for row in found.values()}
    assert (found["/ninja/docs"]["guard"], found["/ninja/docs"]["why"]) == (
        *(guard, "the middleware looks for no key in a body"),
    )


def test_replays_that_are_refused(settings: Settings) -> None:
    """The middleware guards a view behind a check that it cannot repeat, and the list says what
    that means.
    """

    def walled(request: HttpRequest) -> HttpResponse:
        return another(request)

    walled.__wrapped__ = another  # type: ignore[attr-defined]
    settings.ROOT_URLCONF.urlpatterns.append(path("walled/", walled))
    (row,) = listed("walled")
    assert (row["guard"], row["why"].partition(":")[0]) == ("middleware", "its replays are refused")
    settings.IDEMPOTENCY = {"AUTHORIZE_REPLAY": f"{HERE}.another"}
    assert listed("walled")[0]["why"] == ""


def test_without_the_middleware(settings: Settings) -> None:
    """A view without its own entry point has no guard; one that is exempt needs none."""
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if name != OURS]
    guards = {row["path"]: row["guard"] for row in listed()}
    assert (guards["/plain/"], guards["/awaited/"], guards["/posted/"]) == (
        "shadowed",
        "nothing",
        "nothing",
    )
    assert (guards["/exempt/"], guards["/shop/"], guards["/webhooks/stripe/"]) == (
        "exempt",
        "exempt",
        "exempt",
    )
    assert guards["/hidden/"] == "error"
    assert (guards["/leased/"], guards["/below/"]) == ("decorator", "decorator")


def test_for_a_pipeline() -> None:
    """--unguarded filters, --fail-unguarded sets the exit status, and a path narrows both."""
    assert {row["guard"] for row in listed("--unguarded")} == {"error", "nothing"}
    with pytest.raises(CommandError, match="are not guarded"):
        listed("--fail-unguarded")
    assert [row["path"] for row in listed("--fail-unguarded", "webhooks")] == [
        "/webhooks/stripe/",
        "/webhooks/<kind>/",
    ]


def test_a_pipeline_is_green_beside_an_exempt_webhook(settings: Settings) -> None:
    """What is exempt is a declared decision, with the middleware and without: only an undeclared
    route fails.
    """
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if name != OURS]
    urlconf = ModuleType("green")
    urlconf.urlpatterns = [  # type: ignore[attr-defined]
        path("pay/", idempotent(required=True)(plain)),
        path("webhook/", exempt),
        path("shop/", elsewhere),
    ]
    settings.ROOT_URLCONF = urlconf
    assert [row["guard"] for row in listed("--fail-unguarded")] == ["decorator", "exempt", "exempt"]
    urlconf.urlpatterns.append(path("forgotten/", plain))
    with pytest.raises(CommandError, match="1 of 4 are not guarded"):
        listed("--fail-unguarded")


def test_durations_for_people(settings: Settings) -> None:
    """A table shows a duration in units, and JSON in seconds."""
    week = idempotent(ttl=timedelta(days=7), extensions=[Tombstones(timedelta(hours=36))])(plain)
    settings.ROOT_URLCONF.urlpatterns.append(path("kept/", week))
    out = StringIO()
    call_command("idempotency_routes", "kept", stdout=out)
    shown = " ".join(out.getvalue().split())
    assert "ttl=7d extensions=['Tombstones(1 day, 12:00:00)']" in shown
    assert listed("kept")[0]["terms"]["ttl"] == 604800
    assert '"ttl": 604800,' in json_of("kept")


def test_for_people() -> None:
    """For people it is a table with the reason below each line, and it says which views the
    middleware guards.
    """
    out = StringIO()
    call_command("idempotency_routes", "webhooks", stdout=out)
    head, stripe, view, why, *_, middleware, _, checklist = out.getvalue().splitlines()
    assert head.split() == ["METHODS", "GUARD", "PATH"]
    assert stripe.split() == ["any", "unsafe", "exempt", "/webhooks/stripe/"]
    assert (view.strip(), why.strip()) == (f"{HERE}.another", "EXEMPT: path:/webhooks/stripe/")
    assert middleware == "The middleware guards requests of authenticated users: SCOPE is not set."
    assert checklist == "What to look at before production: docs/how-to/checklist.md"


def test_among_the_routes_of_others(settings: Settings) -> None:
    """The project's own come first, the admin's are left out and counted, and a terminal shows all
    of it.
    """
    found = settings.ROOT_URLCONF.urlpatterns
    found[:0] = [path("admin/", admin.site.urls), path("theirs/", APIRootView.as_view())]
    found.append(
        path(
            "profiled/",
            idempotent(
                profile=DIALECTS["stripe"], extensions=[OnTakeover(print)], guarantee="lease"
            )(plain),
        )
    )
    paths = [row["path"] for row in listed()]
    assert paths[0] == "/plain/"
    # Ninja's view, the project's function.
    assert paths.index("/ninja/guarded/") < paths.index("/theirs/")
    assert not [path for path in paths if path.startswith("/admin/")]
    assert listed("admin")
    (profiled,) = listed("profiled")
    assert profiled["terms"]["profile"] == "stripe"
    out = StringIO()
    call_command("idempotency_routes", stdout=out)
    lines = out.getvalue().splitlines()
    assert "a path shows it: idempotency_routes admin" in lines[-3]
    assert max(map(len, lines)) <= 100


def test_wrong_settings_come_first(settings: Settings) -> None:
    """Wrong settings are an error, not a wrong table."""
    settings.IDEMPOTENCY = {"EXEMPT": ["admin"]}
    with pytest.raises(CommandError, match="has no known prefix"):
        listed()
