"""What only the middleware does: it is project-wide, last in the list, and leaves every other entry
point alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client, override_settings
from django.urls import path
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_idempotency import idempotency_exempt, idempotent, scopes
from django_idempotency.errors import ConfigurationError
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect

from .conftest import KEY, Connect, Sender, effects
from .outcome_views import write

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


def plain(request: HttpRequest) -> HttpResponse:
    write()
    return JsonResponse({"guarded": bool(getattr(request, "idempotency", None))}, status=201)


def raising(request: HttpRequest) -> HttpResponse:
    write()
    raise LookupError


@idempotent(ttl=timedelta(hours=1))
def own_policy(request: HttpRequest) -> HttpResponse:
    return plain(request)


def hiding(request: HttpRequest) -> HttpResponse:
    return own_policy(request)


class HidingRest(APIView):
    def post(self, request: Request) -> HttpResponse:
        return own_policy(request._request)


def handling(request: HttpRequest) -> HttpResponse:
    """It works, and makes a response of each error."""
    Effect.objects.create(label="handled", attempt=0)
    try:
        return own_policy(request)
    except ConfigurationError:
        return HttpResponse(status=422)


@idempotency_exempt
def exempt_and_hiding(request: HttpRequest) -> HttpResponse:
    return own_policy(request)


@api_view(["POST"])
@idempotent(ttl=timedelta(hours=1))
def own_policy_below(request: Request) -> Response:
    write()
    return Response({"guarded": True}, status=201)


@idempotency_exempt
def exempt(request: HttpRequest) -> HttpResponse:
    return plain(request)


class Bare(APIView):
    permission_classes = ()

    def post(self, request: Request) -> Response:
        write()
        return Response({"guarded": bool(getattr(request, "idempotency", None))}, status=201)


class BareRaising(APIView):
    def post(self, request: Request) -> Response:
        write()
        raise LookupError


class OwnDispatch(ViewSet):
    """Its `dispatch()` does nothing of its own, as in many projects."""

    permission_classes = ()

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)

    def create(self, request: Request) -> Response:
        write()
        return Response({"guarded": bool(getattr(request, "idempotency", None))}, status=201)


class Reads(APIView):
    def get(self, request: Request) -> Response:
        return Response({})


def staff_only(view: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return view(request, *args, **kwargs) if request.user.is_staff else HttpResponse(status=403)

    return wrapper


@method_decorator(staff_only, name="dispatch")
class StaffDispatch(OwnDispatch):
    """What decorates its `dispatch()` checks access."""


class ForUsers(LoginRequiredMixin, View):
    raise_exception = True

    def post(self, request: HttpRequest) -> HttpResponse:
        return plain(request)


class Commands:
    """A project dispatcher's own `cls`, which is not a view of Django."""


def dispatcher(request: HttpRequest) -> HttpResponse:
    return plain(request)


dispatcher.cls = Commands  # type: ignore[attr-defined]

urlpatterns = [
    path("dispatcher/", dispatcher),
    path("for-users/", ForUsers.as_view()),
    path("decorated-reads/", staff_only(Reads.as_view())),
    path("plain/", plain),
    path("raising/", raising),
    path("exempt/", exempt),
    path("own/", own_policy),
    path("own-dispatch/", OwnDispatch.as_view({"post": "create"})),
    path("staff-dispatch/", StaffDispatch.as_view({"post": "create"})),
    path("hiding/", hiding),
    path("hiding-rest/", HidingRest.as_view()),
    path("handling/", handling),
    path("hiding-exempt/", exempt_and_hiding),
    path("below/", own_policy_below),
    path("bare/", Bare.as_view()),
    path("bare-raising/", BareRaising.as_view()),
    path("exempt-bare/", idempotency_exempt(Bare.as_view())),
    path("staff/", staff_only(Bare.as_view())),
]


class Witness:
    """A middleware with every hook there is."""

    saw: list[str] = []  # noqa: RUF012 - emptied by each test

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, *args: Any) -> None:
        self.saw.append("view")

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse:
        self.saw.append(f"exception in transaction: {connection.in_atomic_block}")
        return HttpResponse("handled", status=418)


@pytest.mark.parametrize("url", ["plain", "bare", "dispatcher", "own-dispatch", "staff-dispatch"])
def test_it_guards_what_has_no_entry_point(user: User, connect: Connect, url: str) -> None:
    """The middleware guards plain views, bare DRF views also with a `dispatch()`, and one whose
    `cls` is not of DRF.
    """
    user.is_staff = True
    user.save()
    send = connect(f"/{url}/", user)
    assert send().json() == {"guarded": True}
    assert send()["Idempotent-Replayed"] == "true"
    assert effects() == 1


@pytest.mark.parametrize("url", ["exempt", "exempt-bare"])
def test_an_exempt_view_runs_each_time(user: User, connect: Connect, url: str) -> None:
    """Login, signup and tokens run each time: none of their responses is stored."""
    send = connect(f"/{url}/", user)
    assert [send().json(), send().json()] == [{"guarded": False}] * 2
    assert effects() == 2
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("url", ["own", "below"])
def test_the_policy_nearest_the_view_wins(user: User, connect: Connect, url: str) -> None:
    """The request is guarded once, by the view's own entry point."""
    send = connect(f"/{url}/", user)
    assert [send().status_code, send().status_code] == [201, 201]
    assert effects() == 1
    left = IdempotencyRecord.objects.get().expires_at - timezone.now()
    assert left < timedelta(hours=1)


@pytest.mark.parametrize(("url", "name"), [("hiding", "hiding"), ("hiding-rest", "HidingRest")])
def test_a_guard_that_it_cannot_see(user: User, connect: Connect, url: str, name: str) -> None:
    """A view calls a guarded one: a replay would skip what is between, so the keyed request raises
    before any work.
    """
    send = connect(f"/{url}/", user)
    send.client.raise_request_exception = True
    with pytest.raises(ConfigurationError, match=f"Put @idempotency_exempt on {name};"):
        send()
    assert effects() == 0
    assert send(key=None).status_code == 201


def test_a_view_that_handles_it(user: User, connect: Connect) -> None:
    """The response is not kept, and what it wrote is rolled back: the request goes through when the
    mistake is corrected.
    """
    send = connect("/handling/", user)
    assert [send()["Idempotency-Status"] for _ in range(2)] == ["failed", "failed"]
    assert effects() == 0


def test_a_hidden_guard_behind_an_exempt_view(user: User, connect: Connect) -> None:
    """The inner view keeps its guard."""
    exempt = connect("/hiding-exempt/", user)
    first, retry = exempt(key="another"), exempt(key="another")
    assert (first["Idempotency-Status"], retry["Idempotency-Status"]) == ("created", "replayed")


@pytest.mark.parametrize("url", ["plain", "bare"])
def test_anonymous_is_not_a_principal(url: str) -> None:
    """A record would have no owner, so the request runs unguarded."""
    client = Client()
    answers = [client.post(f"/{url}/", headers={"Idempotency-Key": KEY}) for _ in range(2)]
    assert [answer.json() for answer in answers] == [{"guarded": False}] * 2
    assert not IdempotencyRecord.objects.exists()


@scopes.before_user
def by_header(request: HttpRequest) -> str | None:
    return request.headers.get("X-Project")


@override_settings(IDEMPOTENCY={"SCOPE": f"{__name__}.by_header"})
def test_a_key_of_a_project_does_not_log_in(user: User, connect: Connect) -> None:
    """A replay asks LoginRequiredMixin again: the key's principal need not be the user."""
    send, project = connect("/for-users/", user), {"X-Project": "a"}
    assert send(headers=project)["Idempotency-Status"] == "created"
    stranger = Sender("/for-users/", Client(), {})(headers=project)
    assert (stranger.status_code, "Idempotent-Replayed" in stranger) == (403, False)
    assert send(headers=project)["Idempotency-Status"] == "replayed"


def test_a_decorated_dispatch_is_asked_again(user: User, connect: Connect) -> None:
    """It stays inside the view, before the guard: a replay needs its consent."""
    user.is_staff = True
    user.save()
    send = connect("/staff-dispatch/", user)
    assert send().status_code == 201
    User.objects.update(is_staff=False)
    assert (send().status_code, send(key="another").status_code, effects()) == (403, 403, 1)


@pytest.mark.parametrize("staff", [False, True])
def test_a_decorated_drf_view_is_never_run_without_its_decorator(
    user: User, connect: Connect, staff: bool
) -> None:
    """Rebuilding it from `.cls` would skip the decorator: a keyed request raises, one without a key
    runs as usual.
    """
    user.is_staff = staff
    user.save()
    send = connect("/staff/", user)
    assert send(key=None).status_code == (201 if staff else 403)
    send.client.raise_request_exception = True
    with pytest.raises(ImproperlyConfigured, match="IdempotentViewMixin"):
        send()


def test_other_middlewares_hooks_run(user: User, connect: Connect, settings: Any) -> None:
    """Another's process_view sees a guarded request, and its process_exception responds to it,
    after the rollback.
    """
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE[:-1],
        f"{__name__}.Witness",
        settings.MIDDLEWARE[-1],
    ]
    Witness.saw.clear()
    send = connect("/raising/", user)
    assert send().status_code == 418
    assert Witness.saw == ["view", "exception in transaction: False"]
    assert effects() == 0
    assert (send().status_code, effects(), IdempotencyRecord.objects.get().attempt) == (418, 0, 2)


@override_settings(IDEMPOTENCY={"REQUIRED": True})
@pytest.mark.parametrize(("url", "status"), [("plain", 400), ("bare", 400), ("exempt", 201)])
def test_a_key_can_be_required_of_the_project(
    user: User, connect: Connect, url: str, status: int
) -> None:
    """REQUIRED refuses an unsafe request without a key, except for exempt views."""
    send = connect(f"/{url}/", user)
    assert send(key=None).status_code == status
    assert send().status_code == 201


def test_an_exception_of_a_bare_view_releases(user: User, connect: Connect) -> None:
    """An adapted view that raises is rolled back and released, as with the mixin."""
    send = connect("/bare-raising/", user)
    assert [send().status_code, send().status_code] == [500, 500]
    assert (effects(), IdempotencyRecord.objects.get().attempt) == (0, 2)


def test_without_a_key_it_costs_no_query(
    user: User, connect: Connect, django_assert_num_queries: Any
) -> None:
    """A request without a key costs 0 queries, and so does a safe one with a key."""
    client = Client()
    with django_assert_num_queries(0):
        assert client.get("/exempt/nothing", headers={"Idempotency-Key": KEY}).status_code == 404
    with django_assert_num_queries(1):
        assert client.post("/plain/").status_code == 201


def test_a_decorated_view_that_only_reads_is_left_alone(user: User, connect: Connect) -> None:
    """The view has nothing to guard: a POST gets its usual refusal with and without a key, and no
    check reports it.
    """
    user.is_staff = True
    user.save()
    send = connect("/decorated-reads/", user)
    assert [send().status_code, send(key=None).status_code] == [405, 405]
    assert not IdempotencyRecord.objects.exists()
