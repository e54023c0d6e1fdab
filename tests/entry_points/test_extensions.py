"""Extensions of a policy: when each method is asked, and that nothing it does breaks the promise."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from django.core.cache import cache
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.permissions import AllowAny, IsAdminUser
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import (
    BufferedStreams,
    Policy,
    Tombstones,
    idempotent,
    idempotent_function,
)
from django_idempotency.api import Default, Details, Dialect, Extension
from django_idempotency.contrib.limits import FreshKeys
from django_idempotency.contrib.steps.durable import execution
from django_idempotency.errors import InProgress, TooManyKeys
from django_idempotency.http.plan import plan_of
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from django_idempotency.testing.clock import elapse
from testproject.payments.models import Effect

from ..support.factories import UserFactory

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


class Noting(Extension):
    """Notes what it is asked."""

    asked: ClassVar[list[str]] = []

    def before_claim(self, call: Details, payload: Any) -> None:
        self.asked.append("before_claim")

    def claimed(self, call: Details) -> None:
        self.asked.append("claimed")

    def ended(self, call: Details) -> None:
        self.asked.append(f"ended {call.left_as and call.left_as.name}")

    def event(self, name: str, call: Details) -> None:
        self.asked.append(name)


class Breaking(Extension):
    """Makes a query that fails."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _break(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM nowhere_at_all")

    def ended(self, call: Details) -> None:
        if self.name == "ended":
            self._break()

    def event(self, name: str, call: Details) -> None:
        if name == self.name:
            self._break()


class Telling(Tombstones):
    """An option that looks at calls, too."""

    def event(self, name: str, call: Details) -> None:
        Noting.asked.append(name)


class Closed(Extension):
    """Refuses while it is closed."""

    closed = False

    def claimed(self, call: Details) -> None:
        if self.closed:
            raise TooManyKeys(headers={"Retry-After": "1"})


class Broken(BaseException):
    """Passes through everything, as a kill does."""


CLOSED = Closed()
CLOSING = Noting()


def pay(request: HttpRequest) -> HttpResponse:
    Effect.objects.create(label="paid", attempt=0)
    if "How" in request.headers:
        raise {"broken": Broken, "error": LookupError}[request.headers["How"]]
    return JsonResponse({}, status=201)


class WithArguments(APIView):
    """Its `as_view()` takes an argument of its own, by which it chooses permissions."""

    authentication_classes = (SessionAuthentication,)

    @classmethod
    def as_view(cls, internal: bool = True, **initkwargs: Any) -> Any:
        initkwargs["permission_classes"] = [AllowAny] if internal else [IsAdminUser]
        return super().as_view(**initkwargs)

    def post(self, request: Any) -> Response:
        Effect.objects.create(label="paid", attempt=0)
        return Response({}, status=201)


class Pluggable(APIView):
    """Its `as_view()` is that of another class."""

    authentication_classes = (SessionAuthentication,)

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        return super(Pluggable, Plugin).as_view(**initkwargs)

    def post(self, request: Any) -> Response:
        Effect.objects.create(label="paid", attempt=0)
        return Response({}, status=201)


class Plugin(Pluggable): ...


SEEN: list[weakref.ref[HttpRequest]] = []


class PerRequest(IdempotentViewMixin, APIView):
    """Makes a policy for each request, which refers to it."""

    authentication_classes = (SessionAuthentication,)

    def get_idempotency_policy(self) -> Policy:
        request = self.request
        SEEN.append(weakref.ref(request._request))
        return Policy(authorize_replay=lambda again, _: bool(request.user == again.user))

    def post(self, request: Any) -> Response:
        return Response({}, status=201)


ONE_A_DAY = FreshKeys("1/d")
urlpatterns = [
    path("noted/", idempotent(extensions=[CLOSED, CLOSING])(pay)),
    path("leased/", idempotent(extensions=[CLOSED, CLOSING], guarantee="lease")(pay)),
    path("noted-first/", idempotent(extensions=[CLOSING, CLOSED])(pay)),
    path("completed/", idempotent(extensions=[Breaking("completed")])(pay)),
    path("ended/", idempotent(extensions=[Breaking("ended")])(pay)),
    path("flood/", idempotent(extensions=[ONE_A_DAY])(pay)),
    path("looser/", idempotent(extensions=[FreshKeys("2/d")])(pay)),
    path("for-admins/", WithArguments.as_view(internal=False)),
    path("decorated/", idempotent(WithArguments.as_view(internal=False))),
    path("pluggable/", Pluggable.as_view()),
    path("per-request/", PerRequest.as_view()),
    path("plain/", idempotent(pay)),
    path("optional/", idempotent(extensions=[Tombstones(60), BufferedStreams()])(pay)),
    path("telling/", idempotent(extensions=[Telling(60)])(pay)),
]
Post = Callable[..., Any]


@pytest.fixture
def post(user: Any) -> Post:
    client = Client(raise_request_exception=False)
    client.force_login(user)

    def send(url: str, key: str | None = None, **headers: str) -> Any:
        keyed = {} if key == "" else {"Idempotency-Key": key or str(uuid4())}
        return client.post(
            url, {"card": "1"}, content_type="application/json", headers={**keyed, **headers}
        )

    return send


@pytest.fixture(autouse=True)
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    Noting.asked.clear()
    monkeypatch.setattr(CLOSED, "closed", False)


# ------------------------------------------------------------------------------- when it is asked


@pytest.mark.parametrize("url", ["/noted/", "/leased/"])
def test_a_request_and_its_replay(post: Post, url: str) -> None:
    """The end comes once, after the record is settled; a replay is an event."""
    key = str(uuid4())
    post(url, key)
    assert Noting.asked == ["before_claim", "claimed", "claimed", "completed", "ended COMPLETED"]
    Noting.asked.clear()
    post(url, key)
    assert Noting.asked == ["before_claim", "replayed"]


@pytest.mark.parametrize("url", ["/noted/", "/leased/"])
@pytest.mark.parametrize("how", ["error", "broken"])
def test_work_that_raises(post: Post, url: str, how: str) -> None:
    """The end comes once."""
    try:
        post(url, How=how)
    except Broken:
        assert how == "broken"
    ends = [each for each in Noting.asked if each.startswith("ended")]
    assert len(ends) == 1


def test_what_another_refuses(post: Post) -> None:
    """Who has let the call pass hears of its end; who was not asked does not. The key is free."""
    CLOSED.closed = True
    key = str(uuid4())
    assert post("/noted/", key).status_code == 429
    assert Noting.asked == ["before_claim", "claimed", "released"]  # the last two are events
    Noting.asked.clear()
    assert post("/noted-first/").status_code == 429
    assert Noting.asked[-1].startswith("ended")
    CLOSED.closed = False
    assert post("/noted/", key).status_code == 201
    assert Effect.objects.count() == 1


def test_a_takeover_that_is_decided(post: Post) -> None:
    """A call whose work does not run was not let pass: it has no end."""

    @idempotent_function(
        key="order",
        key_prefix="decided",
        guarantee="lease",
        lease=1,
        extensions=[Noting()],
        on_takeover=lambda takeover: takeover.found("found"),
    )
    def charge(order: int) -> str:
        raise Broken

    with pytest.raises(Broken):
        charge(order=1)
    Noting.asked.clear()
    elapse(5)
    assert charge(order=1) == "found"
    assert not [each for each in Noting.asked if each.startswith(("claimed", "ended"))]


# ------------------------------------------------------------------------------------- the promise


class Suspended(BaseException):
    """Ends an attempt of a durable execution."""


def test_a_refusal_in_the_middle_of_a_durable_execution() -> None:
    """Half of its work was done, so its key is no new one: it stays the execution's."""
    runs = []

    @idempotent_function(key="order", guarantee="lease", key_prefix="resumed", extensions=[CLOSED])
    def charge(order: int) -> str:
        runs.append(order)
        if len(runs) == 1:
            raise Suspended
        return "done"

    ours = partial(execution, "order-17", suspended_by=Suspended)
    with ours(), pytest.raises(Suspended):
        charge(order=1)
    CLOSED.closed = True
    with ours(), pytest.raises(TooManyKeys):
        charge(order=1)
    CLOSED.closed = False
    with pytest.raises(InProgress):
        charge(order=1)
    with ours():
        assert charge(order=1) == "done"
    assert runs == [1, 1]


@pytest.mark.parametrize("name", ["completed", "ended"])
def test_a_query_that_fails_under_atomic_requests(
    post: Post, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It breaks its own savepoint: the record and the writes are committed."""
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    assert post(f"/{name}/").status_code == 201
    assert (Effect.objects.count(), IdempotencyRecord.objects.count()) == (1, 1)


@pytest.mark.parametrize("name", ["completed", "ended"])
def test_a_query_that_fails_in_a_callers_transaction(name: str) -> None:
    """The same for a function."""

    @idempotent_function(key="order", key_prefix=f"in-{name}", extensions=[Breaking(name)])
    def charge(order: int) -> int:
        return int(Effect.objects.create(label="paid", attempt=order).pk)

    with transaction.atomic():
        made = charge(order=1)
    assert Effect.objects.filter(pk=made).exists()
    assert charge(order=1) == made


# -------------------------------------------------------------------------------------- the policy


class Counting(Noting):
    """A class in the settings."""


def test_one_object_of_a_class_in_the_settings() -> None:
    with override_settings(IDEMPOTENCY={"EXTENSIONS": [f"{__name__}.Counting"]}):
        (one,) = plan_of(Policy()).terms.extensions
        (other,) = plan_of(Policy(ttl=60)).terms.extensions
        assert one is other


def test_a_policy_s_own_replaces_that_of_the_settings(post: Post) -> None:
    """One of the same class: its rate holds, and nothing counts twice."""
    with override_settings(IDEMPOTENCY={"EXTENSIONS": [f"{__name__}.ONE_A_DAY"]}):
        assert [post("/looser/").status_code for _ in range(3)] == [201, 201, 429]
        assert [post("/noted/").status_code for _ in range(2)] == [201, 429]


def test_an_option_adds_no_statement(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says something about calls, and looks at none: no savepoint protects a call from it."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    sent = []
    for url in ("/plain/", "/optional/"):
        post(url)
        with CaptureQueriesContext(connection) as captured:
            assert post(url).status_code == 201
        sent.append([query["sql"].partition(" ")[0] for query in captured])
    assert sent[0] == sent[1]


def test_an_option_that_looks_at_calls(post: Post) -> None:
    """A subclass may, as any extension."""
    post("/telling/")
    assert "completed" in Noting.asked


def test_a_policy_of_each_request_does_not_keep_it(post: Post) -> None:
    SEEN.clear()
    for _ in range(5):
        assert post("/per-request/").status_code == 201
    gc.collect()
    assert len(SEEN) >= 5
    assert [each for each in SEEN if each() is not None] == []


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 leaves it to a garbage collection"
)
def test_a_flood_keeps_no_request(rf: Any) -> None:
    """Not even until a garbage collection."""
    view = idempotent(extensions=[ONE_A_DAY])(pay)

    def made(key: str, user: Any) -> HttpRequest:
        # A form would refer to its request.
        request: HttpRequest = rf.post(
            "/flood/", {}, content_type="application/json", headers={"Idempotency-Key": key}
        )
        request.user = user
        return request

    user = UserFactory()
    assert view(made("a-key-1", user)).status_code == 201
    gc.collect()
    gc.disable()
    try:
        request = made("a-key-2", user)
        alive = weakref.ref(request)
        assert view(request).status_code == 429
        del request
        assert alive() is None
    finally:
        gc.enable()


def test_dialects_that_are_objects() -> None:
    """One that cannot be hashed, and our default by its class, which has the header of the
    settings.
    """

    @dataclass
    class Mine(Dialect):
        version: str = "1"

    assert plan_of(Policy(profile=Mine())).header == "HTTP_IDEMPOTENCY_KEY"
    with override_settings(IDEMPOTENCY={"HEADER": "X-Key"}):
        assert plan_of(Policy(profile=Default)).header == "HTTP_X_KEY"


def test_renamed_fields_say_what_to_type() -> None:
    for name in ("fresh_keys", "suspect_action"):
        old: dict[str, Any] = {name: "60/m"}
        with pytest.raises(TypeError, match="Type extensions="):
            Policy(**old)


# ------------------------------------------------------------------ REST framework's own as_view()


@pytest.mark.parametrize("url", ["/for-admins/", "/decorated/"])
def test_arguments_of_as_view_count(post: Post, url: str) -> None:
    """A key does not choose other permissions: the view is made of what its callback has."""
    assert [post(url, key).status_code for key in ("", None)] == [403, 403]
    assert Effect.objects.count() == 0


def test_a_class_that_as_view_chooses_is_guarded(post: Post) -> None:
    key = str(uuid4())
    assert [post("/pluggable/", key).status_code for _ in range(2)] == [201, 201]
    assert Effect.objects.count() == 1
