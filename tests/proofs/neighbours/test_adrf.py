"""adrf itself: async views of REST framework, guarded under a lease behind their authentication and
permissions.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from adrf.decorators import api_view
from adrf.views import APIView
from adrf.viewsets import ModelViewSet, ViewSet
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import connections
from django.test import AsyncClient, Client
from django.urls import include, path
from pytest_django import Settings
from rest_framework.authentication import BaseAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.decorators import authentication_classes, permission_classes
from rest_framework.exceptions import APIException, PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.serializers import ModelSerializer
from rest_framework.throttling import BaseThrottle

from django_idempotency import Policy, idempotency_exempt, idempotent
from django_idempotency.core.records import Status
from django_idempotency.errors import ConfigurationError
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect
from tests.support.factories import TokenFactory
from tests.support.observed import Observed

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
LEASE = Policy(guarantee="lease")


class Tokens(BaseAuthentication):
    """An async authentication, as adrf allows."""

    async def authenticate(self, request: Any) -> tuple[User, Token] | None:  # type: ignore[override]
        text = request.headers.get("Authorization", "").removeprefix("Token ")
        found = (
            await Token.objects.filter(key=text, user__is_active=True)
            .select_related("user")
            .afirst()
        )
        return None if found is None else (found.user, found)

    def authenticate_header(self, request: Any) -> str:
        return "Token"


class Staff(BasePermission):
    """An async permission."""

    async def has_permission(self, request: Any, view: Any) -> bool:  # type: ignore[override]
        return bool(request.user.is_staff)


class Closing(BaseThrottle):
    """Lets every request pass until it is shut."""

    shut = False

    async def allow_request(self, request: Any, view: Any) -> bool:  # type: ignore[override]
        return not self.shut

    def wait(self) -> float:
        return 30


class Declined(APIException):
    status_code = 402


#: Has the slow handler begun? Polled, not awaited: an asyncio.Event belongs to one event loop.
ENTERED = threading.Event()


async def work(request: Any) -> Response:
    effect = await Effect.objects.acreate(
        label="adrf", idempotency_key="", attempt=request._request.idempotency.attempt
    )
    match request.data.get("how"):
        case "slow":
            ENTERED.set()
            await asyncio.sleep(0.3)
        case "declined":
            raise Declined
        case "denied":
            raise PermissionDenied
        case "raise":
            raise LookupError
    return Response({"id": effect.pk, "how": request.data.get("how")}, status=201)


class Checked:
    authentication_classes: Any = (Tokens,)
    permission_classes: Any = (Staff,)
    throttle_classes: Any = (Closing,)


class Charges(Checked, IdempotentViewMixin, APIView):
    idempotency = LEASE

    async def post(self, request: Any) -> Response:
        return await work(request)

    @idempotency_exempt
    async def delete(self, request: Any) -> Response:
        await Effect.objects.acreate(label="exempt")
        return Response(status=204)


class Required(Checked, IdempotentViewMixin, APIView):
    idempotency = Policy(guarantee="lease", required=True)

    async def post(self, request: Any) -> Response:
        return await work(request)


class Mixed(Checked, IdempotentViewMixin, ViewSet):
    """One async action makes it an async view; adrf runs the sync one in a thread."""

    idempotency = LEASE

    async def create(self, request: Any) -> Response:
        return await work(request)

    def update(self, request: Any) -> Response:
        return Response({"id": Effect.objects.create(label="thread").pk})


class Effects(ModelSerializer):
    class Meta:
        model = Effect
        fields = ("id", "label")


class EffectViews(Checked, IdempotentViewMixin, ModelViewSet):
    idempotency = LEASE
    queryset = Effect.objects.all()
    serializer_class = Effects


class Sync(Checked, IdempotentViewMixin, APIView):
    """Sync handlers in adrf's class: atomic, as in DRF."""

    def post(self, request: Any) -> Response:
        Effect.objects.create(label="sync")
        if request.data.get("how") == "raise":
            raise LookupError
        return Response({}, status=201)


class Atomic(Checked, IdempotentViewMixin, APIView):
    """No transaction can cover it, and it does not choose a lease."""

    async def post(self, request: Any) -> Response:
        await Effect.objects.acreate(label="atomic")
        return Response({}, status=201)


class Bare(Checked, APIView):
    """A view without a guard of its own."""

    async def post(self, request: Any) -> Response:
        await Effect.objects.acreate(label="bare")
        return Response({}, status=201)


def checked(function: Any) -> Any:
    return authentication_classes([Tokens])(permission_classes([Staff])(function))


@api_view(["POST"])
@checked
@idempotent(guarantee="lease")
async def below(request: Any) -> Response:
    return await work(request)


@idempotent(guarantee="lease")
@api_view(["POST"])
@checked
async def above(request: Any) -> Response:
    return await work(request)


@idempotent(guarantee="lease")
class Decorated(Bare):
    async def post(self, request: Any) -> Response:
        return await work(request)


router = SimpleRouter()
router.register("effects", EffectViews)

urlpatterns = [
    path("mixin/", Charges.as_view()),
    path("required/", Required.as_view()),
    path("viewset/", Mixed.as_view({"post": "create", "put": "update"})),
    path("decorated/", Decorated.as_view()),
    path("below/", below),
    path("above/", above),
    path("sync/", Sync.as_view()),
    path("atomic/", Atomic.as_view()),
    path("bare/", Bare.as_view()),
    path("", include(router.urls)),
]

GUARDED = ("/mixin/", "/viewset/", "/decorated/", "/below/", "/above/")
guarded = pytest.mark.parametrize("url", GUARDED)


class Caller:
    """Sends JSON under ASGI, with a token and a key."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.client = AsyncClient(raise_request_exception=False)

    async def send(
        self, url: str, how: str = "", key: str | None = KEY, method: str = "post"
    ) -> Any:
        headers = {"Authorization": f"Token {self.token}"}
        if key is not None:
            headers["Idempotency-Key"] = key
        return await getattr(self.client, method)(
            url, {"how": how}, content_type="application/json", headers=headers
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return async_to_sync(self.send)(*args, **kwargs)


@pytest.fixture
def token(user: User) -> Token:
    User.objects.filter(pk=user.pk).update(is_staff=True)
    return TokenFactory(user=user)


@pytest.fixture
def call(token: Token) -> Caller:
    return Caller(token.key)


@pytest.fixture(autouse=True)
def _open() -> Iterator[None]:
    yield
    Closing.shut = False


def effects() -> int:
    return Effect.objects.count()


def replayed(response: Any) -> bool:
    return "Idempotent-Replayed" in response


@guarded
def test_a_retry_gets_the_first_response(call: Caller, url: str) -> None:
    """The bytes are the same, another body is a mismatch, and there is one effect."""
    first, retry = call(url), call(url)
    assert (first.status_code, retry.content, replayed(retry)) == (201, first.content, True)
    assert (first["Idempotency-Status"], retry["Idempotency-Status"]) == ("created", "replayed")
    assert call(url, "another").json()["code"] == "request-mismatch"
    assert effects() == 1


@guarded
def test_a_demoted_or_revoked_caller_never_sees_the_replay(
    call: Caller, token: Token, user: User, url: str
) -> None:
    """The permission's 403 or the authentication's 401, and no part of the stored response."""
    assert call(url, "secret").status_code == 201
    User.objects.filter(pk=user.pk).update(is_staff=False)
    demoted = call(url, "secret")
    token.delete()
    revoked = call(url, "secret")
    assert [(demoted.status_code, replayed(demoted)), (revoked.status_code, replayed(revoked))] == [
        (403, False),
        (401, False),
    ]
    assert demoted["Idempotency-Status"] == "refused"
    assert b"secret" not in demoted.content + revoked.content
    assert effects() == 1


@pytest.mark.parametrize("url", ["/mixin/", "/viewset/", "/decorated/"])
def test_a_throttled_retry_gets_429(call: Caller, url: str) -> None:
    """Throttles count before anything is replayed."""
    assert call(url).status_code == 201
    Closing.shut = True
    assert call(url).status_code == 429


@guarded
@pytest.mark.parametrize(
    ("how", "status", "left"),
    [
        ("declined", 402, Status.COMPLETED),
        ("denied", 403, Status.FREE),
        ("raise", 500, Status.FREE),
    ],
)
def test_exceptions_end_as_in_the_table(
    call: Caller, url: str, how: str, status: int, left: Status
) -> None:
    """An exception that REST framework handles is a response; any other frees the key."""
    assert call(url, how).status_code == status
    assert IdempotencyRecord.objects.get().status == left
    assert replayed(call(url, how)) is (left == Status.COMPLETED)


@pytest.mark.parametrize(("key", "code"), [(None, "key-missing"), ("a,b", "key-malformed")])
def test_a_key_that_is_missing_or_malformed(call: Caller, key: str | None, code: str) -> None:
    """The response is 400, and nothing runs."""
    refused = call("/required/", key=key)
    assert (refused.status_code, refused.json()["code"], effects()) == (400, code, 0)


def project_handler(error: Exception, context: Any) -> Response:
    return Response({"error": getattr(error, "default_code", type(error).__name__)}, status=499)


def test_a_projects_own_exception_handler_answers_problems(
    call: Caller, settings: Settings
) -> None:
    """The project's exception handler shapes the problem, as in DRF, and its headers are kept."""
    settings.REST_FRAMEWORK = {
        **settings.REST_FRAMEWORK,
        "EXCEPTION_HANDLER": f"{__name__}.project_handler",
    }
    for url in ("/required/", "/below/"):
        refused = call(url, key="a,b")
        assert (refused.status_code, refused["Cache-Control"]) == (499, "no-store")
    assert effects() == 0


@guarded
def test_ten_at_once_are_one(call: Caller, url: str) -> None:
    """There is one effect; the others get 409."""

    async def send_all() -> list[int]:
        return [
            answer.status_code
            for answer in await asyncio.gather(*(call.send(url, "slow") for _ in range(10)))
        ]

    statuses = async_to_sync(send_all)()
    assert (effects(), statuses.count(201)) == (1, 1)
    assert set(statuses) <= {201, 409}
    assert replayed(call(url, "slow"))


@guarded
def test_a_cancelled_handler_keeps_its_key(call: Caller, url: str) -> None:
    """The work may still be running elsewhere: only the lease frees the key."""

    ENTERED.clear()

    async def leave() -> None:
        sending = asyncio.ensure_future(call.send(url, "slow"))
        while not (ENTERED.is_set() or sending.done()):  # noqa: ASYNC110 - see ENTERED
            await asyncio.sleep(0.01)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

    async_to_sync(leave)()
    assert IdempotencyRecord.objects.get().status == Status.RUNNING
    assert call(url, "slow").status_code == 409


def test_actions_of_every_kind(call: Caller) -> None:
    """adrf's own create, a sync action that adrf runs in a thread, and an exempt handler, which is
    marked unguarded.
    """
    first, retry = call("/effects/"), call("/effects/")
    assert (first.status_code, replayed(retry)) == (400, False)  # the label is missing: dropped
    first, retry = (call("/viewset/", method="put", key=KEY + "2") for _ in range(2))
    assert (first.status_code, retry.content, replayed(retry), effects()) == (
        200,
        first.content,
        True,
        1,
    )
    assert call("/mixin/", method="delete")["Idempotency-Status"] == "unguarded"


def test_sync_handlers_are_atomic(call: Caller) -> None:
    """As in DRF, a failed handler's writes are rolled back."""
    assert (call("/sync/", "raise").status_code, effects()) == (500, 0)
    assert (call("/sync/", "raise").status_code, effects()) == (500, 0)
    assert call("/sync/", key=KEY + "2").status_code == 201
    assert replayed(call("/sync/", key=KEY + "2"))


@pytest.mark.parametrize("url", ["/atomic/", "/bare/"])
def test_what_cannot_be_guarded_raises_before_anything_runs(call: Caller, url: str) -> None:
    """`atomic` on an async handler, and a view without a guard under the middleware.

    Without a key both run.
    """
    call.client.raise_request_exception = True
    with pytest.raises(ConfigurationError, match="async"):
        call(url)
    assert effects() == 0
    assert call(url, key=None).status_code == 201


def test_under_wsgi(token: Token) -> None:
    """Django runs the async view in an event loop, guarded as under ASGI; a view that cannot be
    guarded raises.
    """
    headers = {"Authorization": f"Token {token.key}", "Idempotency-Key": KEY}
    send = functools.partial(
        Client().post, data={"how": ""}, content_type="application/json", headers=headers
    )
    for url in ("/mixin/", "/below/"):
        first, retry = send(url), send(url)
        assert (first.status_code, retry.content, replayed(retry)) == (201, first.content, True)
        IdempotencyRecord.objects.all().delete()
    for url in ("/atomic/", "/bare/"):
        with pytest.raises(ConfigurationError, match="async"):
            send(url)
    assert effects() == 2


@pytest.mark.parametrize("url", ["/mixin/", "/above/"])
def test_a_lease_is_excluded_from_atomic_requests(
    call: Caller, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django refuses other async views in such transactions."""
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    first, retry = call(url), call(url)
    assert (first.status_code, retry.content, replayed(retry)) == (201, first.content, True)
    assert effects() == 1


@guarded
def test_an_observed_view_runs_each_time(call: Caller, url: str, observed: Observed) -> None:
    """A retry runs again, and is reported."""
    responses = [call(url), call(url), call(url, "other")]
    assert [(each.status_code, each["Idempotency-Status"]) for each in responses] == [
        (201, "observed")
    ] * 3
    assert observed.would == ["run", "replay", "request-mismatch"]


def test_what_cannot_be_guarded_is_observed(call: Caller, observed: Observed) -> None:
    """A guard would raise, since no transaction can cover the view."""
    assert call("/atomic/").status_code == 201
