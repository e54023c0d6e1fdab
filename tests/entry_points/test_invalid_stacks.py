"""Stacks, classes and decorators that do not fit: the outcome is as without a key, or an error with
the remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction
from django.contrib.auth.decorators import login_required, permission_required, user_passes_test
from django.contrib.auth.mixins import PermissionRequiredMixin, UserPassesTestMixin
from django.contrib.auth.models import User
from django.db import connection, connections, transaction
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.test import AsyncClient, Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.vary import vary_on_cookie
from rest_framework import viewsets
from rest_framework.decorators import action, api_view
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotency_exempt, idempotent
from django_idempotency.errors import ConfigurationError
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from django_idempotency.scopes import hashed
from django_idempotency.signals import claimed, completed

from ..support.factories import grant
from .conftest import CHARGE, KEY, Connect, effects
from .outcome_views import write

pytestmark = [
    pytest.mark.either_server,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

PERMISSION = "django_idempotency.view_idempotencyrecord"


def answer(request: Any, status: int = 201) -> JsonResponse:
    write()
    return JsonResponse(
        {
            "guarded": bool(getattr(request, "idempotency", None)),
            "atomic": connection.in_atomic_block,
        },
        status=status,
    )


def plain(request: HttpRequest) -> HttpResponse:
    return answer(request)


def receipt(request: HttpRequest) -> HttpResponse:
    write()
    return redirect("/receipt/1/?back=/receipt/")


def raising(request: HttpRequest) -> HttpResponse:
    write()
    raise LookupError


class Permitted(PermissionRequiredMixin, View):
    permission_required = PERMISSION
    raise_exception = True

    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


class AsksTheUser(UserPassesTestMixin, View):
    def test_func(self) -> bool:
        return User.objects.get(username=self.request.user.get_username()).has_perm(PERMISSION)

    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


by_permission = permission_required(PERMISSION, raise_exception=True)


@method_decorator(by_permission, name="dispatch")
class DecoratedClass(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


class BelowDecorated(DecoratedClass):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)


class DecoratedHandler(View):
    @method_decorator([login_required, by_permission])
    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


def allowed(user: Any) -> bool:
    return User.objects.get(pk=user.pk).has_perm(PERMISSION)


class LocksAPermission(BasePermission):
    """Needs the transaction of ATOMIC_REQUESTS."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return bool(User.objects.select_for_update().filter(username=request.user.get_username()))


class Wrapping(APIView):
    """A project's envelope: finalize_response reads `response.data`, and the class has a `_settle`
    of its own.
    """

    permission_classes = (LocksAPermission,)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response.data = {"data": response.data}
        return super().finalize_response(request, response, *args, **kwargs)

    def _settle(self) -> None:
        raise AssertionError("not yours to call")

    def post(self, request: Request) -> Response:
        write()
        return Response({"ok": True}, status=201)


class WrappingMixed(IdempotentViewMixin, Wrapping):
    pass


@method_decorator(vary_on_cookie, name="dispatch")
class DecoratedInside(APIView):
    def post(self, request: Request) -> Response:
        write()
        return Response({}, status=201)


class Raising(APIView):
    def post(self, request: Request) -> Response:
        write()
        raise LookupError


class ExemptHandler(APIView):
    @idempotency_exempt
    def post(self, request: Request) -> Response:
        return Response({"token": "s3cret"}, status=201)


class ExemptMethod(View):
    @method_decorator(idempotency_exempt)
    def post(self, request: HttpRequest) -> HttpResponse:
        return JsonResponse({"token": "s3cret"}, status=201)


@api_view(["POST"])
@idempotency_exempt
def exempt_function(request: Request) -> Response:
    return Response({"token": "s3cret"}, status=201)


class ExemptAction(IdempotentViewMixin, viewsets.ViewSet):
    @idempotency_exempt
    @action(detail=False, methods=["post"])
    def token(self, request: Request) -> Response:
        return Response({"token": "s3cret"}, status=201)


@transaction.non_atomic_requests
@idempotent()
def non_atomic(request: HttpRequest) -> HttpResponse:
    return answer(request)


@idempotent()
class Atomic(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class NonAtomicAbove(Atomic):
    pass


@idempotent()
@method_decorator(transaction.non_atomic_requests, name="dispatch")
class NonAtomicBelow(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


def audited(view: Any) -> Any:
    view.audited = True
    return view


@idempotent()
@audited
@transaction.non_atomic_requests
@api_view(["POST"])
def non_atomic_function(request: Request) -> Response:
    write()
    return Response({"atomic": connection.in_atomic_block}, status=201)


class Listed(viewsets.ViewSet):
    def list(self, request: Request) -> Response:
        return Response([])

    def create(self, request: Request) -> Response:
        return Response({"amount": "too much"}, status=400)


class ListedMixed(IdempotentViewMixin, Listed):
    pass


class Mixed(IdempotentViewMixin, APIView):
    def post(self, request: Request) -> Response:
        return Response({"atomic": connection.in_atomic_block}, status=201)


@idempotent(guarantee="lease", scope=lambda request: User.objects.get().username)
async def leased(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=201)


async def adrf(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=201)


adrf.cls = APIView  # type: ignore[attr-defined]


async def awaited(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ran", status=201)


urlpatterns = [
    path("plain/", plain),
    path("receipt/", receipt),
    path("plainly-raising/", raising),
    path("awaited/", awaited),
    path("by-permission/", permission_required(PERMISSION, raise_exception=True)(plain)),
    path("by-login-page/", permission_required(PERMISSION, login_url="/login/")(plain)),
    path("by-test/", login_required(user_passes_test(allowed, login_url="/login/")(plain))),
    path("by-class/", DecoratedClass.as_view()),
    path("by-parent/", BelowDecorated.as_view()),
    path("by-handler/", DecoratedHandler.as_view()),
    path("by-mixin/", Permitted.as_view()),
    path("by-test-mixin/", AsksTheUser.as_view()),
    path("wrapping/", Wrapping.as_view()),
    path("wrapping-mixed/", WrappingMixed.as_view()),
    path("decorated-inside/", DecoratedInside.as_view()),
    path("raising/", Raising.as_view()),
    path("exempt-handler/", ExemptHandler.as_view()),
    path("exempt-method/", ExemptMethod.as_view()),
    path("exempt-function/", exempt_function),
    path("exempt-action/", ExemptAction.as_view({"post": "token"})),
    path("non-atomic/", non_atomic),
    path("non-atomic-mixed/", transaction.non_atomic_requests(Mixed.as_view())),
    path("mixed/", Mixed.as_view()),
    path("atomic-class/", Atomic.as_view()),
    path("non-atomic-class/", transaction.non_atomic_requests(Atomic.as_view())),
    path("non-atomic-above/", NonAtomicAbove.as_view()),
    path("non-atomic-below/", NonAtomicBelow.as_view()),
    path("non-atomic-function/", non_atomic_function),
    path("listed/", Listed.as_view({"get": "list", "post": "create"})),
    path("listed-mixed/", ListedMixed.as_view({"get": "list", "post": "create"})),
    path("leased/", leased),
    path("adrf/", adrf),
]


@pytest.fixture
def permitted(user: User) -> User:
    grant(user, IdempotencyRecord, "view_idempotencyrecord")
    return user


ASKED_AGAIN = ["by-permission", "by-login-page", "by-test", "by-class", "by-handler", "by-mixin"]


@pytest.mark.parametrize("url", [*ASKED_AGAIN, "by-test-mixin"])
def test_a_forbidden_client_gets_no_replay(permitted: User, connect: Connect, url: str) -> None:
    """A forbidden client gets no replay, under the middleware either: the checks around the view
    are repeated first.
    """
    send = connect(f"/{url}/", permitted)
    assert [send().status_code, send()["Idempotent-Replayed"]] == [201, "true"]
    permitted.user_permissions.clear()
    refused = send()
    assert (refused.status_code, refused.json()["code"]) == (403, "replay-refused")
    assert effects() == 1


def test_a_payment_that_links_back_is_remembered(user: User, connect: Connect) -> None:
    """Only `next` asks to come back after a login."""
    send = connect("/receipt/", user)
    assert [send().status_code, send()["Idempotent-Replayed"], effects()] == [302, "true", 1]


@pytest.mark.parametrize("url", ["wrapping", "wrapping-mixed"])
@pytest.mark.parametrize("atomic", [False, True])
def test_a_projects_envelope(
    user: User, connect: Connect, url: str, monkeypatch: pytest.MonkeyPatch, *, atomic: bool
) -> None:
    """A replay and a problem are finished responses; permissions keep their transaction; no name of
    ours collides.
    """
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", atomic)
    send = connect(f"/{url}/", user)
    if not atomic and connection.vendor != "sqlite":
        # The permission itself needs a transaction.
        assert send(key=None).status_code == send().status_code == 500
        return
    first, retry = send(), send()
    assert (first.status_code, first.json()) == (201, {"data": {"ok": True}})
    assert (retry.content, retry["Idempotent-Replayed"]) == (first.content, "true")
    assert send({"another": "body"}).json()["code"] == "request-mismatch"


def test_what_decorates_dispatch_is_inside(user: User, connect: Connect) -> None:
    """as_view() shows the decorators of dispatch as its own, although they are inside it."""
    send = connect("/decorated-inside/", user)
    assert [send().status_code, send()["Idempotent-Replayed"], effects()] == [201, "true", 1]


EXEMPT = ["exempt-handler", "exempt-method", "exempt-function", "exempt-action"]


@pytest.mark.parametrize("url", EXEMPT)
def test_exempt_wherever_it_is_written(user: User, connect: Connect, url: str) -> None:
    """On a handler, below @api_view and on an action: no token is stored."""
    send = connect(f"/{url}/", user)
    assert [send().status_code, send().status_code] == [201, 201]
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize(
    ("url", "atomic"),
    [
        ("non-atomic", False),
        ("non-atomic-mixed", False),
        ("mixed", True),
        ("non-atomic-class", False),
        ("non-atomic-above", False),
        ("non-atomic-below", False),
        ("non-atomic-function", False),
        ("atomic-class", True),  # after the others: they have opted out, and this one has not
    ],
)
def test_non_atomic_requests_above_us(
    user: User,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    *,
    url: str,
    atomic: bool,
    key: str | None,
) -> None:
    """What the project takes out of ATOMIC_REQUESTS stays out; a keyed request has a guard of its
    own.
    """
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    assert connect(f"/{url}/", user)(key=key).json()["atomic"] is (atomic or key is not None)


def test_what_a_drf_callback_is_marked_with_stays() -> None:
    """Middlewares read a view's marks, as ours does."""
    assert non_atomic_function.audited is True


@pytest.mark.parametrize("url", ["listed", "listed-mixed"])
@pytest.mark.parametrize("key", [None, KEY])
def test_the_browsable_api_shows_its_form_again(browser: Any, url: str, key: str | None) -> None:
    """Django renders the response after dispatch(), and the view's handler must still be there."""
    headers = {"Accept": "text/html"} | ({"Idempotency-Key": key} if key else {})
    refused = browser.post(f"/{url}/", {"amount": "1"}, headers=headers)
    assert refused.status_code == 400
    assert (
        'name="raw-tab"' in refused.text or f'<form action="/{url}/" method="POST"' in refused.text
    )


class Witness:
    """Handles exceptions, as Sentry's or a project's own middleware does."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse:
        return HttpResponse(f"{type(exception).__name__}", status=418)


def test_a_lent_views_exception_reaches_the_middlewares(
    user: User, connect: Connect, settings: Any
) -> None:
    """With a key as without one, process_exception responds, and the writes are gone."""
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE[:-1],
        f"{__name__}.Witness",
        settings.MIDDLEWARE[-1],
    ]
    send = connect("/raising/", user)
    assert send().status_code == 418
    assert (effects(), IdempotencyRecord.objects.get().attempt) == (0, 1)
    assert send(key=None).content == b"LookupError"


@pytest.mark.parametrize("atomic", [False, True])
def test_what_a_middleware_makes_of_an_exception(
    user: User, connect: Connect, settings: Any, monkeypatch: pytest.MonkeyPatch, *, atomic: bool
) -> None:
    """It is outside the guard: the view has failed, and what it wrote is rolled back; a retry runs
    it again.
    """
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", atomic)
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE[:-1],
        f"{__name__}.Witness",
        settings.MIDDLEWARE[-1],
    ]
    send = connect("/plainly-raising/", user)
    assert send(key=None).status_code == 418
    assert effects() == (0 if atomic else 1)
    assert [send().status_code, "Idempotent-Replayed" in send()] == [418, False]
    assert effects() == (0 if atomic else 1)


def sets_a_key(get_response: Callable[[HttpRequest], Any]) -> Any:
    """A middleware behind ours, where none should be."""

    def sync(request: HttpRequest) -> Any:
        request.META["HTTP_IDEMPOTENCY_KEY"] = KEY
        return get_response(request)

    async def asynchronous(request: HttpRequest) -> Any:
        request.META["HTTP_IDEMPOTENCY_KEY"] = KEY
        return await get_response(request)

    if iscoroutinefunction(get_response):
        return markcoroutinefunction(asynchronous)
    return sync


sets_a_key.sync_capable = sets_a_key.async_capable = True  # type: ignore[attr-defined]


def test_a_key_that_a_later_middleware_sets(user: User, connect: Connect, settings: Any) -> None:
    """The guard is where the view is called, so it does not matter who has set the key."""
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.sets_a_key"]
    send = connect("/plain/", user)
    assert [send(key=None)["Idempotency-Status"] for _ in range(2)] == ["created", "replayed"]
    assert (connection.in_atomic_block, effects()) == (False, 1)


def test_the_same_on_asgi(user: User, settings: Any) -> None:
    """On ASGI, too."""
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.sets_a_key"]
    client = AsyncClient()
    client.force_login(user)
    send = partial(async_to_sync(client.post), "/plain/", CHARGE, content_type="application/json")
    assert [send()["Idempotency-Status"] for _ in range(2)] == ["created", "replayed"]
    assert (connection.in_atomic_block, effects()) == (False, 1)


@pytest.mark.parametrize("url", ["/adrf/"])
def test_an_async_rest_framework_is_refused(user: User, settings: Any, url: str) -> None:
    """Its authentication and permissions would come after the replay."""
    settings.IDEMPOTENCY = {"GUARANTEE": "lease"}
    client = AsyncClient()
    client.force_login(user)
    with pytest.raises(ConfigurationError, match="idempotency_exempt"):
        async_to_sync(client.post)(url, headers={"Idempotency-Key": KEY})


def test_async_receivers_and_a_scope_that_asks_the_database(user: User) -> None:
    """Signals are awaited in an async view; callables that query run in a thread."""
    heard: list[str] = []

    async def listen(sender: Any, **_: Any) -> None:
        heard.append((await User.objects.aget()).username)

    def listen_too(sender: Any, **_: Any) -> None:
        heard.append(User.objects.get().username)

    client = AsyncClient()
    with_receivers = [claimed, completed]
    for signal in with_receivers:
        receiver(signal)(listen)
        receiver(signal)(listen_too)
    try:
        status = async_to_sync(client.post)(
            "/leased/", headers={"Idempotency-Key": KEY}
        ).status_code
    finally:
        for signal in with_receivers:
            signal.disconnect(listen)
            signal.disconnect(listen_too)
    assert (status, heard) == (201, [user.username] * 4)
    assert IdempotencyRecord.objects.get().scope == hashed(f"scope:{user.username}")


async def always(request: Any, outcome: Any) -> bool:
    return False


def test_a_coroutine_never_counts_as_true() -> None:
    """An async authorize_replay would authorise every caller."""
    with pytest.raises(ValueError, match="sync function"):
        Policy(authorize_replay=always)  # type: ignore[arg-type]


@pytest.mark.parametrize("verdict", [False, None, 1, "yes"])
def test_only_true_authorises(user: User, connect: Connect, settings: Any, verdict: Any) -> None:
    """A forgotten return refuses."""
    settings.IDEMPOTENCY = {"AUTHORIZE_REPLAY": lambda request, outcome: verdict}
    send = connect("/plain/", user)
    assert [send().status_code, send().status_code] == [201, 403]


UNGUARDED: dict[str, tuple[dict[str, Any], str | None]] = {
    "a key is only asked for": ({"REQUIRED": "warn"}, None),
    "a malformed key of nobody's": ({}, '"'),
}


@pytest.mark.parametrize("case", UNGUARDED)
@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_an_async_view_that_no_guard_is_needed_for(settings: Any, client: Any, case: str) -> None:
    """It cannot be "atomic", which only matters to a request that would be guarded: any other
    runs.
    """
    settings.IDEMPOTENCY, key = UNGUARDED[case]
    post = async_to_sync(client().post) if client is AsyncClient else client().post
    headers = {} if key is None else {"Idempotency-Key": key}
    assert post("/awaited/", headers=headers).status_code == 201


def test_an_async_view_while_idempotency_is_off(
    user: User, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off is off."""
    monkeypatch.setenv("IDEMPOTENCY_DISABLED", "1")
    assert connect("/awaited/", user)().status_code == 201


def test_an_async_view_under_atomic_requests(
    user: User, connect: Connect, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django refuses it, with a key as without one."""
    settings.IDEMPOTENCY = {"GUARANTEE": "lease"}
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    send = connect("/awaited/", user)
    send.client.raise_request_exception = True
    for key in (KEY, None):
        with pytest.raises(RuntimeError, match="ATOMIC_REQUESTS with async views"):
            send(key=key)


def test_a_key_in_the_body_is_only_asked_for(settings: Any) -> None:
    """The middleware looks for none there, and warns of none."""
    settings.IDEMPOTENCY = {"PROFILE": "django_idempotency.contrib.forms.Form", "REQUIRED": "warn"}
    assert Client().post("/awaited/").status_code == 201
