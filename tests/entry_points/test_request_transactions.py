"""ATOMIC_REQUESTS and DRF: one transaction per request, with and without a key, whatever the class
overrides.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import SuspiciousOperation
from django.db import OperationalError, connection, connections, transaction
from django.http import Http404, HttpRequest
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import path
from rest_framework import exceptions, viewsets
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect
from tests.stores.helpers import connection_id, elsewhere, kill

from .conftest import KEY, Connect, Sender, effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]
rows_are_locked = pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite locks no rows")


@pytest.fixture(autouse=True)
def atomic_requests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)


def write(label: str) -> None:
    Effect.objects.create(label=label, idempotency_key="", attempt=0)


def labels() -> list[str]:
    return list(Effect.objects.order_by("pk").values_list("label", flat=True))


class Paying(APIView):
    """Writes, and ends as the client asks."""

    def post(self, request: Any) -> Response:
        write("handler")
        match request.data["how"]:
            case "validation":
                raise exceptions.ValidationError("no")
            case "404":
                raise Http404
            case "suspicious":
                raise SuspiciousOperation
            case "raise":
                raise LookupError
            case how:
                return Response({"how": how}, status=int(how))


class PayingSet(viewsets.ViewSet):
    def create(self, request: Request) -> Response:
        return Paying.post(self, request)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- what classes override


def audited(view: Any) -> Any:
    """A decorator of the project's around a whole view."""

    @functools.wraps(view)
    def audit(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        write("decorator")
        return view(request, *args, **kwargs)

    return audit


def nothing(base: Any) -> Any:
    return type("Nothing", (base,), {})


def policy(base: Any) -> Any:
    return type("Chooses", (base,), {"get_idempotency_policy": lambda self: Policy()})


def initial(base: Any) -> Any:
    class Locks(base):
        def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
            write("initial")
            assert User.objects.select_for_update().count()
            super().initial(request, *args, **kwargs)

    return Locks


def dispatch(base: Any) -> Any:
    class Dispatches(base):
        def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            write("before")
            response = super().dispatch(request, *args, **kwargs)
            write("after")
            response["X-After"] = "yes"
            return response

    return Dispatches


def handle_exception(base: Any) -> Any:
    class Handles(base):
        def handle_exception(self, exc: Exception) -> Any:
            write("handling")
            return Response({"failed": type(exc).__name__}, status=400)

    return Handles


def finalize(base: Any) -> Any:
    class Finalizes(base):
        def finalize_response(
            self, request: Request, response: Any, *args: Any, **kwargs: Any
        ) -> Any:
            write("finalizing")
            return super().finalize_response(request, response, *args, **kwargs)

    return Finalizes


def as_view(base: Any) -> Any:
    class Wraps(base):
        @classmethod
        def as_view(cls, **kwargs: Any) -> Any:
            return audited(super().as_view(**kwargs))

    return Wraps


def non_atomic(base: Any) -> Any:
    class Leaves(base):
        @classmethod
        def as_view(cls, **kwargs: Any) -> Any:
            return transaction.non_atomic_requests(super().as_view(**kwargs))

    return Leaves


def mixed(base: Any) -> Any:
    return type("Mixed", (IdempotentViewMixin, base), {})


OVERRIDES = (nothing, policy, initial, dispatch, handle_exception, finalize, as_view, non_atomic)
#: How a class is guarded.
GUARDED: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "mixed": lambda override: override(mixed(Paying)),
    "mixed-above": lambda override: mixed(override(Paying)),
    "decorated": lambda override: idempotent()(override(Paying)),
}


class LocksTheAccount(BasePermission):
    def has_permission(self, request: Any, view: Any) -> bool:
        return bool(User.objects.select_for_update().filter(pk=request.user.pk))


class Withdrawing(IdempotentViewMixin, APIView):
    """Needs a lock that no other transaction gets: its handler checks that the permission's lock
    holds.
    """

    permission_classes = (LocksTheAccount,)

    def post(self, request: Request) -> Response:
        record = IdempotencyRecord.objects.using("default").filter(key=KEY)
        return Response(
            {
                "locked": elsewhere(lambda: is_locked(request.user.pk)),
                "claimed": elsewhere(record.exists),
            },
            status=201,
        )


def is_locked(pk: Any) -> bool:
    try:
        with transaction.atomic():
            User.objects.select_for_update(nowait=True).get(pk=pk)
    except OperationalError:
        return True
    return False


class Dying(IdempotentViewMixin, APIView):
    """Loses its connection, and so its transaction, in the middle of its first request."""

    derived: list[str] = []  # noqa: RUF012 - the test looks at it

    def post(self, request: Any) -> Response:
        self.derived.append(request.idempotency.derive("bank"))
        write("handler")
        if len(self.derived) == 1:
            kill(connection_id())
            write("in vain")
        return Response({"attempt": request.idempotency.attempt}, status=201)


class Consuming(Paying):
    """Its authentication consumes a token, which is a row."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if not Effect.objects.filter(label="token").delete()[0]:
            raise exceptions.PermissionDenied


class Counting(Paying):
    """Counts each request before its handler."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        write("counted")


class Registered(Paying):
    """A base that keeps a register of its classes, each of which must give its name."""

    register: list[type[Any]] = []  # noqa: RUF012 - that is its point

    def __init_subclass__(cls, *, named: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.register.append(cls)


class Named(Registered, named="named"):
    def post(self, request: Request) -> Response:
        write("handler")
        return Response({"attributes": sorted({*vars(self)} - {"post"})}, status=201)


class NamedSet(viewsets.ViewSet):
    def create(self, request: Request) -> Response:
        write("handler")
        return Response(
            {"attributes": sorted({*vars(self)} - {"post"}), "action": self.action}, status=201
        )


urlpatterns = [
    *(path(f"bare/{override.__name__}/", override(Paying).as_view()) for override in OVERRIDES),
    *(
        path(f"{way}/{o.__name__}/", guard(o).as_view())
        for way, guard in GUARDED.items()
        for o in OVERRIDES
    ),
    path("bare/outside/", audited(Paying.as_view())),
    path("mixed/outside/", audited(GUARDED["mixed"](nothing).as_view())),
    path("bare/set/", PayingSet.as_view({"post": "create"})),
    path("mixed/set/", mixed(PayingSet).as_view({"post": "create"})),
    path("withdrawing/", Withdrawing.as_view()),
    path("dying/", Dying.as_view()),
    path("consuming/", mixed(Consuming).as_view()),
    path("consuming-adapted/", Consuming.as_view()),
    path("counting/", mixed(Counting).as_view()),
    path("named/", Named.as_view()),
    path("named-set/", NamedSet.as_view({"post": "create"})),
]

WAYS = [
    *((way, override.__name__) for way in GUARDED for override in OVERRIDES),
    ("mixed", "outside"),
    ("mixed", "set"),
]


def trace(send: Sender, how: str) -> tuple[Any, ...]:
    """Send without a key. Return the response, and each statement, BEGIN and COMMIT among them."""
    with CaptureQueriesContext(connection) as queries:
        response = send({"how": how}, key=None)
    statements = [
        re.sub(r"'[^']*'|\b\d[\d.]*\b|_s\d+\w*|s\d+_x\d+", "?", str(query["sql"]))
        for query in queries
    ]
    return response.status_code, response.content, dict(response.headers), statements


@pytest.mark.parametrize(("way", "override"), WAYS)
def test_without_a_key_nothing_differs(
    user: User, connect: Connect, way: str, override: str
) -> None:
    """The same response, by the same statements in the same transactions, as from a view that we do
    not guard.
    """
    for how in ("201", "500", "validation", "404", "suspicious", "raise"):
        bare, guarded = (
            trace(connect(f"/{kind}/{override}/", user), how) for kind in ("bare", way)
        )
        assert guarded == bare, how


@rows_are_locked
@pytest.mark.parametrize("key", [None, KEY])
def test_a_permissions_lock_holds_in_the_handler(
    user: User, connect: Connect, key: str | None
) -> None:
    """With a key and without; the claim is in the same transaction, so others see it only after the
    COMMIT.
    """
    first = connect("/withdrawing/", user)(key=key)
    assert (first.status_code, first.json()) == (201, {"locked": True, "claimed": False})


@rows_are_locked
def test_a_lost_transaction_leaves_no_trace(user: User, connect: Connect) -> None:
    """The retry is attempt 1, at once, and derives the same key for the provider that the first
    request called.
    """
    Dying.derived.clear()
    send = connect("/dying/", user)
    assert send().status_code in (500, 503)
    assert IdempotencyRecord.objects.count() == 0
    assert (send().json(), labels()) == ({"attempt": 1}, ["handler"])
    assert len({*Dying.derived}) == 1


@pytest.mark.parametrize("url", ["/consuming/", "/consuming-adapted/"])
def test_what_authentication_wrote_is_rolled_back_with_a_failure(
    user: User, connect: Connect, url: str
) -> None:
    """A failed request does not consume a one-time token, so its keyed retry works."""
    write("token")
    send = connect(url, user)
    assert send({"how": "500"}).status_code == 500
    assert (labels(), IdempotencyRecord.objects.count()) == (["token"], 0)
    assert send({"how": "201"}).status_code == 201
    assert labels() == ["handler"]


def test_what_is_answered_without_the_handler_ends_as_an_early_response(
    user: User, connect: Connect
) -> None:
    """A replay and a mismatch commit what came before the handler, as a bare view's early return
    would.
    """
    send = connect("/counting/", user)
    assert [
        send({"how": "201"}).status_code,
        send({"how": "201"}).status_code,
        send({"how": "202"}).status_code,
    ] == [
        201,
        201,
        422,
    ]
    assert labels() == ["counted", "handler", "counted", "counted"]


@pytest.mark.parametrize("how", ["201", "validation", "404", "500", "raise"])
def test_in_a_test_case(how: str, user: User, connect: Connect) -> None:
    """Inside the transaction of a test that of the request is a savepoint, and a failure leaves no
    trace in it, as in production.
    """
    with transaction.atomic():
        send = connect("/mixed/nothing/", user)
        status = send({"how": how}).status_code
        kept = how in ("201", "404")
        found = [record.status for record in IdempotencyRecord.objects.all()]
        assert found == ([Status.COMPLETED] if kept else [])
        assert ("Idempotent-Replayed" in send({"how": how})) == kept
        assert (status, effects()) == (
            {"validation": 400, "raise": 500}.get(how) or int(how),
            int(how == "201"),
        )


def test_a_caller_without_a_urlconf(user: User) -> None:
    """Django opens no transaction around a view that is called as a function, and neither do we."""
    request = RequestFactory().post("/", {"how": "201"}, content_type="application/json")
    vars(request).update(_dont_enforce_csrf_checks=True, user=user)
    with CaptureQueriesContext(connection) as queries:
        assert GUARDED["mixed"](nothing).as_view()(request).status_code == 201
    assert not [query for query in queries if query["sql"].startswith(("BEGIN", "SAVEPOINT"))]


@pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="PostgreSQL's snapshots and schemas"
)
@pytest.mark.parametrize(
    "setting",
    ["default_transaction_isolation = 'repeatable read'", "search_path = 'public', 'pg_catalog'"],
)
def test_under_other_snapshots_and_schemas(user: User, connect: Connect, setting: str) -> None:
    """The claim is in the transaction of the view, so it finds the same table; retries replay."""
    send = connect("/mixed/nothing/", user)
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute(f"SET {setting}")
    try:
        first, retry = send({"how": "201"}), send({"how": "201"})
    finally:
        connection.close()
    assert (first.status_code, retry["Idempotent-Replayed"], effects()) == (201, "true", 1)


@pytest.mark.parametrize("url", ["/named/", "/named-set/"])
def test_lending_registers_no_class(user: User, connect: Connect, url: str) -> None:
    """The middleware makes a class of which no base is told, and the view has the attributes that
    DRF gives it.
    """
    send = connect(url, user)
    bare = send(key=None)
    keyed = send()
    assert (keyed.status_code, keyed.json()["attributes"]) == (201, bare.json()["attributes"])
    assert send()["Idempotent-Replayed"] == "true"
    assert Registered.register == [Named]


def test_a_decorated_class_stays_the_same_class() -> None:
    """Nothing is registered twice, and a keyword that its base requires is asked for once."""

    @idempotent()
    class Decorated(Registered, named="decorated"):
        pass

    try:
        assert Registered.register == [Named, Decorated]
    finally:
        Registered.register.remove(Decorated)
