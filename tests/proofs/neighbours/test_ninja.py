"""django-ninja itself: a guarded operation comes after ninja's checks, and its response is ninja's
own.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import ninja.testing
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.db.models import F
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext
from django.urls import path
from ninja import Body, File, Form, NinjaAPI, Path, Query, Router, Schema, Status, UploadedFile
from ninja.decorators import decorate_view
from ninja.errors import HttpError
from ninja.security import HttpBearer, django_auth
from ninja.streaming import JSONL
from ninja.throttling import BaseThrottle
from rest_framework.authtoken.models import Token

from django_idempotency import BufferedStreams, idempotency_exempt, idempotent
from django_idempotency.core.records import Status as RecordStatus
from django_idempotency.errors import ConfigurationError, InProgress, Problem, StoreUnavailable
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from testproject.payments.models import Effect
from tests.stores.helpers import elsewhere
from tests.support.factories import TokenFactory
from tests.support.observed import Observed

if TYPE_CHECKING:
    from django.http import HttpRequest  # as ruff would have it: ninja need not know it

pytestmark = [
    pytest.mark.either_server,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"


class ChargeIn(Schema):
    amount: int
    how: str = "schema"


class ChargeOut(Schema):
    id: int
    amount: int
    note: str | None = None


class OutOfStock(Exception):
    """An error of the project's own."""


class Bearer(HttpBearer):
    """Returns a token's user, as most projects do."""

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        found = Token.objects.filter(key=token, user__is_active=True).select_related("user").first()
        return found.user if found else None


class ApiKey(HttpBearer):
    """Returns the row itself, which is not a user."""

    def authenticate(self, request: HttpRequest, token: str) -> Token | None:
        return Token.objects.filter(key=token).first()


class Text(HttpBearer):
    """Returns the token itself, as ninja's own documentation does."""

    def authenticate(self, request: HttpRequest, token: str) -> str:
        return token


class Closing(BaseThrottle):
    """Lets every request pass until it is shut."""

    shut = False

    def allow_request(self, request: HttpRequest) -> bool:
        return not self.shut

    def wait(self) -> float:
        return 30


THROTTLE = Closing()
#: Set while the slow operation works.
ENTERED = asyncio.Event()


def superuser(request: HttpRequest) -> Any:
    user = django_auth(request)
    return user if user and user.is_superuser else None


def work(request: HttpRequest) -> Effect:
    handle: Any = getattr(request, "idempotency", None)
    return Effect.objects.create(
        label="ninja", idempotency_key="", attempt=handle.attempt if handle else 0
    )


#: How an operation ends → what it returns, for the row that it has written.
RESULTS: dict[str, Callable[[Effect], Any]] = {
    "schema": lambda effect: ChargeOut(id=effect.pk, amount=5),
    "dict": lambda effect: {"id": effect.pk, "amount": 5, "note": "a dict"},
    "status": lambda effect: Status(201, {"id": effect.pk, "amount": 5}),
    "refused": lambda effect: Status(409, {"detail": f"refused {effect.pk}"}),
    "empty": lambda effect: Status(204, None),
    "response": lambda effect: HttpResponse(
        b"\x00 bytes", status=202, content_type="application/octet-stream"
    ),
    "invalid": lambda effect: {"amount": "no number"},
    "500": lambda effect: HttpResponse(status=500),
}
#: … or what it raises.
ERRORS: dict[str, Callable[[Effect], Exception]] = {
    "http-error": lambda effect: HttpError(402, f"declined {effect.pk}"),
    "forbidden": lambda effect: HttpError(403, "not you"),
    "denied": lambda effect: PermissionDenied(),
    "stock": lambda effect: OutOfStock(str(effect.pk)),
    "raise": lambda effect: LookupError(),
}


def result_of(how: str, effect: Effect) -> Any:
    if how == "integrity":
        with transaction.atomic():
            Effect.objects.create(pk=effect.pk, label="twice")
    if how in ERRORS:
        raise ERRORS[how](effect)
    return RESULTS[how](effect)


api = NinjaAPI(urls_namespace="tests", auth=Bearer())
RESPONSES: Any = {200: ChargeOut, 201: ChargeOut, 409: dict[str, str], 204: None}


@api.exception_handler(OutOfStock)
def out_of_stock(request: HttpRequest, error: OutOfStock) -> HttpResponse:
    return api.create_response(request, {"out": str(error)}, status=410)


@api.exception_handler(IntegrityError)
def conflict(request: HttpRequest, error: IntegrityError) -> HttpResponse:
    return api.create_response(request, {"conflict": True}, status=422)


@api.post("/charges", response=RESPONSES, throttle=THROTTLE, exclude_unset=True)
@idempotent()
def charge(request: HttpRequest, response: HttpResponse, payload: ChargeIn) -> Any:
    response["X-Charge"] = "made"
    return result_of(payload.how, work(request))


@api.post("/async/charges", response=RESPONSES, throttle=THROTTLE, exclude_unset=True)
@idempotent(guarantee="lease")
async def acharge(request: HttpRequest, response: HttpResponse, payload: ChargeIn) -> Any:
    response["X-Charge"] = "made"
    if payload.how == "slow":
        ENTERED.set()
        await asyncio.sleep(0.3)
    effect = await sync_to_async(work)(request)
    how = "schema" if payload.how == "slow" else payload.how
    return await sync_to_async(result_of)(how, effect)


# One path, several operations: one guarded, one not, one of two methods.


@api.get("/orders/{int:number}")
def read(request: HttpRequest, number: Path[int]) -> dict[str, Any]:
    return {"number": number, "atomic": connection.in_atomic_block}


@api.put("/orders/{int:number}")
def replace(request: HttpRequest, number: Path[int]) -> dict[str, Any]:
    work(request)
    if number == 13:
        raise LookupError
    return {"number": number, "atomic": connection.in_atomic_block}


@api.api_operation(["POST", "PATCH"], "/orders/{int:number}")
@idempotent(required=True)
def order(
    request: HttpRequest, number: Path[int], fast: Query[bool] = False, note: Body[str] = ""
) -> dict[str, Any]:
    return {"number": number, "fast": fast, "note": note, "id": work(request).pk}


@api.post("/uploads")
@idempotent()
def upload(request: HttpRequest, title: Form[str], paper: File[UploadedFile]) -> dict[str, Any]:
    return {"title": title, "paper": paper.read().decode(), "id": work(request).pk}


@api.post("/lines", response=JSONL[ChargeOut])
@idempotent(extensions=[BufferedStreams()])
def lines(request: HttpRequest) -> Iterator[dict[str, int]]:
    effect = work(request)
    return ({"id": effect.pk, "amount": n} for n in range(3))


router = Router(auth=ApiKey())


@router.post("/keys")
@idempotent()
def by_api_key(request: HttpRequest) -> dict[str, int]:
    return {"id": work(request).pk}


@router.post("/text", auth=Text())
@idempotent()
def by_text(request: HttpRequest) -> dict[str, int]:
    return {"id": work(request).pk}


@router.post("/scoped", auth=Text())
@idempotent(scope=lambda request: f"account {request.auth[:3]}")
def by_scope(request: HttpRequest) -> dict[str, int]:
    return {"id": work(request).pk}


@router.post("/admin", auth=superuser)
@idempotent()
def for_superusers(request: HttpRequest) -> dict[str, int]:
    return {"id": work(request).pk}


@router.post("/unguarded", auth=superuser)
def unguarded(request: HttpRequest) -> dict[str, int]:
    return {"id": work(request).pk}


@router.post("/exempt", auth=django_auth)
@idempotency_exempt
def exempt(request: HttpRequest) -> dict[str, int]:
    return {"id": work(request).pk}


api.add_router("/first", router)
api.add_router("/second", router, url_name_prefix="second")

#: An API with a shape of its own for problems, and a 500 for every other error.
own = NinjaAPI(urls_namespace="own", auth=Bearer())


@own.exception_handler(Problem)
def in_our_shape(request: HttpRequest, problem: Problem) -> HttpResponse:
    return own.create_response(request, {"error": problem.code}, status=problem.status)


@own.exception_handler(Exception)
def anything(request: HttpRequest, error: Exception) -> HttpResponse:
    return own.create_response(request, {"error": "internal"}, status=500)


@own.post("/charges")
@idempotent(required=True)
def own_charge(request: HttpRequest, how: str = "dict") -> Any:
    return result_of(how, work(request))


def forgetful(function: Any) -> Any:
    """Decorate without functools.wraps()."""

    def inner(request: HttpRequest) -> Any:
        return function(request)

    return inner


@own.post("/hidden")
@forgetful
@idempotent()
def hidden(request: HttpRequest) -> dict[str, int]:
    return {"id": work(request).pk}


# The same operations, guarded and bare.


class OneTime(Bearer):
    """Locks the user, and consumes the token."""

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        user = super().authenticate(request, token)
        if user is None:
            return None
        User.objects.select_for_update().get(pk=user.pk)
        Token.objects.filter(key=token).delete()
        return user


def is_locked(user: User) -> bool:
    """Does another transaction hold the user's row?"""
    try:
        with transaction.atomic():
            User.objects.select_for_update(nowait=True).get(pk=user.pk)
    except OperationalError:
        return True
    return False


def taking_tokens(run: Any) -> Any:
    """The same outside of ninja's checks, with a write after the operation."""

    @functools.wraps(run)
    def taking(request: HttpRequest, **kw: Any) -> Any:
        Effect.objects.filter(label="token").delete()
        response = run(request, **kw)
        Effect.objects.create(label="after")
        response["X-After"] = "yes"
        return response

    return taking


def make(guard: Callable[..., Any]) -> NinjaAPI:
    """Make an API whose operations are guarded by the given decorator."""
    made = NinjaAPI(urls_namespace=f"made-{id(guard)}", auth=OneTime())

    @made.post("/charges", response=RESPONSES)
    @guard
    def charges(request: HttpRequest, payload: ChargeIn) -> Any:
        return in_turn(request, payload.how)

    @made.post("/decorated", response=RESPONSES, auth=Bearer())
    @decorate_view(taking_tokens)
    @guard
    def decorated(request: HttpRequest, payload: ChargeIn) -> Any:
        return in_turn(request, payload.how)

    @made.post("/locks")
    @guard
    def locks(request: Any) -> dict[str, bool]:
        record = IdempotencyRecord.objects.filter(key=KEY)
        return {
            "locked": elsewhere(lambda: is_locked(request.auth)),
            "claimed": elsewhere(record.exists),
        }

    return made


#: How often these operations have run in one test. A run that was rolled back with its record counts
#: no attempt.
RUNS: list[str] = []


def in_turn(request: Any, how: str) -> Any:
    """End as `how` says, or with "this then that" as the first run and the others say."""
    effect = work(request)
    RUNS.append(how)
    first, _, then = how.partition(" then ")
    return result_of(then if then and len(RUNS) > 1 else first, effect)


#: An API whose operations lose what the guard needs, and that turns every error into a 500.
losing = NinjaAPI(urls_namespace="losing", auth=Bearer())
losing.exception_handler(Exception)(anything)


@losing.post("/transaction")
@idempotent()
def lose_transaction(request: Any) -> dict[str, int]:
    work(request)
    RUNS.append("lost")
    if len(RUNS) == 1:
        connection.connection.rollback()
    return {"attempt": request.idempotency.attempt, "id": work(request).pk}


@losing.post("/store")
@idempotent(guarantee="lease", on_store_failure="open")
def derive(request: Any) -> dict[str, str]:
    work(request)
    return {"key": request.idempotency.derive("bank")}


@losing.post("/async/store")
@idempotent(guarantee="lease", on_store_failure="open")
async def aderive(request: Any) -> dict[str, str]:
    return {"key": request.idempotency.derive("bank")}


urlpatterns = [
    path("api/", api.urls),
    path("own/", own.urls),
    path("bare/", make(lambda function: function).urls),
    path("guarded/", make(idempotent()).urls),
    path("leased/", make(idempotent(guarantee="lease")).urls),
    path("losing/", losing.urls),
]

SYNC_AND_ASYNC = pytest.mark.parametrize("url", ["/api/charges", "/api/async/charges"])


class Caller:
    """Sends JSON with a token and a key."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.client = Client(raise_request_exception=False)

    def __call__(
        self,
        url: str,
        body: Any = None,
        key: str | None = KEY,
        method: str = "POST",
        **headers: str,
    ) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        if key is not None:
            headers["Idempotency-Key"] = key
        body = json.dumps({"amount": 5} if body is None else body)
        return self.client.generic(
            method, url, body, content_type="application/json", headers=headers
        )


@pytest.fixture
def token(user: User) -> Token:
    return TokenFactory(user=user)


@pytest.fixture
def call(token: Token) -> Caller:
    return Caller(token.key)


@pytest.fixture(autouse=True)
def _open() -> Iterator[None]:
    yield
    THROTTLE.shut = False
    RUNS.clear()


def effects() -> int:
    return Effect.objects.count()


def replayed(response: Any) -> bool:
    return bool(response.get("Idempotent-Replayed"))


# ---------------------------------------------------------------------------------------- responses


@SYNC_AND_ASYNC
@pytest.mark.parametrize(
    ("how", "status", "content"),
    [
        ("schema", 200, b'{"id": %d, "amount": 5}'),
        ("dict", 200, b'{"id": %d, "amount": 5, "note": "a dict"}'),
        ("status", 201, b'{"id": %d, "amount": 5}'),
        ("empty", 204, b""),
        ("response", 202, b"\x00 bytes"),
        ("http-error", 402, b'{"detail": "declined %d"}'),
        ("stock", 410, b'{"out": "%d"}'),
    ],
)
def test_a_retry_gets_what_ninja_made_of_the_result(
    call: Caller, url: str, how: str, status: int, content: bytes
) -> None:
    """Schemas, dicts, a status, nothing, a response, handled exceptions: the same bytes, and one
    effect, committed.
    """
    first, retry = (call(url, {"amount": 5, "how": how}) for _ in range(2))
    effect = Effect.objects.get()
    assert (first.status_code, first.content) == (
        status,
        content % effect.pk if b"%d" in content else content,
    )
    assert (retry.status_code, retry.content, retry["Content-Type"]) == (
        status,
        first.content,
        first["Content-Type"],
    )
    assert (replayed(first), replayed(retry)) == (False, True)
    assert (first["Idempotency-Status"], retry["Idempotency-Status"]) == ("created", "replayed")
    assert retry.get("X-Charge") == first.get("X-Charge")
    assert effect.attempt == 1


@SYNC_AND_ASYNC
@pytest.mark.parametrize("how", ["forbidden", "denied", "refused"])
def test_a_refusal_frees_the_key(call: Caller, url: str, how: str) -> None:
    """What the table drops is dropped, returned or raised; what it wrote is kept, as without us."""
    assert [replayed(call(url, {"amount": 5, "how": how})) for _ in range(2)] == [False, False]
    assert effects() == 2
    assert call(url, {"amount": 6}).status_code == 200


@SYNC_AND_ASYNC
@pytest.mark.parametrize("how", ["raise", "500", "invalid"])
def test_a_failure_frees_the_key(call: Caller, url: str, how: str) -> None:
    """An exception, a 500 or a result that the response schema refuses; in `atomic` the writes are
    gone.
    """
    assert [call(url, {"amount": 5, "how": how}).status_code for _ in range(2)] == [500, 500]
    record = IdempotencyRecord.objects.get()
    assert (record.status, record.attempt) == (RecordStatus.FREE, 2)
    assert effects() == (2 if "async" in url else 0)


def test_an_answered_integrity_error_keeps_what_was_written(call: Caller) -> None:
    """The savepoint is gone and the rest is committed, as in ninja's own API without a key."""
    first, retry = (call("/api/charges", {"amount": 5, "how": "integrity"}) for _ in range(2))
    assert (first.status_code, first.json(), replayed(retry), effects()) == (
        422,
        {"conflict": True},
        True,
        1,
    )


def test_a_stream_is_made_inside_the_guard(call: Caller) -> None:
    """Ninja streams lines from what the function returns; buffered, they are remembered."""
    first = call("/api/lines").getvalue()
    retry = call("/api/lines")
    assert first.count(b"\n") == 3
    assert (retry.content, replayed(retry), effects()) == (first, True, 1)


def test_parameters_of_every_kind(call: Caller) -> None:
    """Path, query and body reach the function, and each is part of the request that a key
    identifies.
    """
    first = call("/api/orders/7?fast=1", "deep", method="PATCH")
    assert first.json() == {
        "number": 7,
        "fast": True,
        "note": "deep",
        "id": Effect.objects.get().pk,
    }
    assert replayed(call("/api/orders/7?fast=1", "deep", method="PATCH"))
    for url, body, method in [
        ("/api/orders/8?fast=1", "deep", "PATCH"),
        ("/api/orders/7?fast=0", "deep", "PATCH"),
        ("/api/orders/7?fast=1", "else", "PATCH"),
        ("/api/orders/7?fast=1", "deep", "POST"),
    ]:
        assert call(url, body, method=method).json()["code"] == "request-mismatch", (
            url,
            body,
            method,
        )
    assert effects() == 1


def test_an_upload(call: Caller) -> None:
    """A new boundary is the same request, and the function can read the upload."""

    def send(content: str) -> Any:
        from django.core.files.uploadedfile import SimpleUploadedFile

        headers = {"Authorization": f"Bearer {call.token}", "Idempotency-Key": KEY}
        data = {"title": "invoice", "paper": SimpleUploadedFile("a.txt", content.encode())}
        return call.client.post("/api/uploads", data, headers=headers)

    first = send("one")
    assert first.json()["paper"] == "one"
    assert (replayed(send("one")), send("two").status_code) == (True, 422)


# -------------------------------------------------------------------------------- behind the checks


@SYNC_AND_ASYNC
def test_a_revoked_token_never_sees_the_replay(call: Caller, token: Token, url: str) -> None:
    """The client gets 401 from ninja's authentication, and no part of the stored response."""
    first = call(url, {"amount": 5, "how": "dict"})
    token.delete()
    refused = call(url, {"amount": 5, "how": "dict"})
    assert (refused.status_code, replayed(refused)) == (401, False)
    assert "a dict" not in refused.content.decode()
    assert (first.status_code, effects()) == (200, 1)


@pytest.mark.parametrize("prefix", ["first", "second"])
def test_a_demoted_superuser_never_sees_the_replay(
    browser: Client, user: User, prefix: str
) -> None:
    """The same holds under the middleware, which knows the session: it leaves a guarded operation
    alone.
    """
    User.objects.filter(pk=user.pk).update(is_superuser=True)
    send = functools.partial(browser.post, f"/api/{prefix}/admin", headers={"Idempotency-Key": KEY})
    assert (send().status_code, replayed(send())) == (200, True)
    User.objects.filter(pk=user.pk).update(is_superuser=False)
    refused = send()
    assert (refused.status_code, replayed(refused), effects()) == (401, False, 1)


def test_the_middleware_leaves_an_unguarded_operation_alone(browser: Client, user: User) -> None:
    """The middleware cannot tell who may have its replay: it runs, and the response says that it is
    unguarded.
    """
    User.objects.filter(pk=user.pk).update(is_superuser=True)
    send = functools.partial(browser.post, "/api/first/unguarded", headers={"Idempotency-Key": KEY})
    assert [send()["Idempotency-Status"] for _ in range(2)] == ["unguarded", "unguarded"]
    User.objects.filter(pk=user.pk).update(is_superuser=False)
    refused = send()
    assert (refused.status_code, refused["Idempotency-Status"], effects()) == (401, "unguarded", 2)
    assert not IdempotencyRecord.objects.exists()


def test_where_keys_are_required_the_middleware_refuses_what_it_cannot_guard(
    browser: Client, settings: Any
) -> None:
    """An error names the function, with and without a key; an exempt one runs."""
    settings.IDEMPOTENCY = {"REQUIRED": True}
    for headers in ({}, {"Idempotency-Key": KEY}):
        with pytest.raises(
            ConfigurationError,
            match="cannot guard /api/first/unguarded, an operation of django-ninja",
        ):
            browser.post("/api/first/unguarded", headers=headers)
    assert browser.post("/api/first/exempt").status_code == 200


@SYNC_AND_ASYNC
def test_a_throttled_retry_gets_429(call: Caller, url: str) -> None:
    """Ninja throttles before anything is replayed."""
    assert call(url).status_code == 200
    THROTTLE.shut = True
    refused = call(url)
    assert (refused.status_code, replayed(refused), refused["Retry-After"]) == (429, False, "30")
    assert refused["Idempotency-Status"] == "refused"


@SYNC_AND_ASYNC
def test_what_ninja_refuses_claims_nothing(call: Caller, url: str) -> None:
    """422 of the validation, or 401: no record, so the corrected request runs under the same
    key.
    """
    assert call(url, {"amount": "many"}).status_code == 422
    assert Caller("unknown")(url).status_code == 401
    assert not IdempotencyRecord.objects.exists()
    assert call(url).status_code == 200


@SYNC_AND_ASYNC
def test_a_key_belongs_to_the_one_whom_ninja_let_in(
    call: Caller, other_user: User, url: str
) -> None:
    """The same key of another user is another operation."""
    first = call(url)
    other = Caller(TokenFactory(user=other_user).key)(url)
    assert (other.status_code, replayed(other), effects()) == (200, False, 2)
    assert first.content != other.content


def test_an_api_key_is_a_principal_and_no_secret_is_stored(
    call: Caller, token: Token, other_user: User
) -> None:
    """If authentication returns a row, the row owns the key; a primary key that is the token is
    hashed.
    """
    assert call("/api/first/keys").status_code == 200
    assert replayed(call("/api/first/keys"))
    assert not replayed(Caller(TokenFactory(user=other_user).key)("/api/first/keys"))
    scopes = list(IdempotencyRecord.objects.values_list("scope", flat=True))
    assert all(token.key not in scope for scope in scopes)
    assert len(set(scopes)) == 2
    token.delete()
    assert call("/api/first/keys").status_code == 401


def test_a_token_without_a_user(call: Caller, token: Token) -> None:
    """A string is a secret and rotates: without a scope the key has no owner, with one the scope is
    its owner.
    """
    refused = call("/api/first/text")
    assert (refused.status_code, refused.json()["code"], effects()) == (400, "scope-required", 0)
    assert call("/api/first/scoped").status_code == 200
    rotated = Caller(token.key[:3] + "rotated")
    assert replayed(rotated("/api/first/scoped"))
    assert not replayed(Caller("another")("/api/first/scoped"))


def test_a_scope_takes_precedence_over_the_session_of_a_token_without_a_user(
    browser: Client,
) -> None:
    """Two accounts of one browser do not meet under its user."""
    for account in ("one", "two"):
        headers = {"Idempotency-Key": KEY, "Authorization": f"Bearer {account}"}
        assert not replayed(browser.post("/api/first/scoped", headers=headers))
    assert effects() == 2


# ----------------------------------------------------------------------------------------- problems


@pytest.mark.parametrize(
    ("key", "code"), [(None, "key-missing"), ("a,b", "key-malformed"), ("", "key-malformed")]
)
def test_a_key_that_is_missing_or_malformed(call: Caller, key: str | None, code: str) -> None:
    """400 before the function runs, as a problem document, or in the API's own shape."""
    problem = call("/api/orders/7", "x", key=key)
    assert (problem.status_code, problem["Content-Type"]) == (400, "application/problem+json")
    assert problem.json()["code"] == code
    shaped = call("/own/charges", key=key)
    assert (shaped.status_code, shaped.json()) == (400, {"error": code})
    assert shaped["Cache-Control"] == "no-store"
    assert effects() == 0


@SYNC_AND_ASYNC
def test_another_body_is_a_mismatch(call: Caller, url: str) -> None:
    """422, and the first response is kept."""
    first = call(url)
    assert call(url, {"amount": 6}).json()["code"] == "request-mismatch"
    assert call(url).content == first.content


def test_a_handler_for_everything_does_not_handle_problems(call: Caller) -> None:
    """Only a handler for Problem, or for a class of ours, handles it; the other's 500 is rolled
    back.
    """
    assert [call("/own/charges?how=raise").status_code for _ in range(2)] == [500, 500]
    assert effects() == 0


# -------------------------------------------------------------------------------------- concurrency


def test_twenty_at_once_are_one(call: Caller, token: Token) -> None:
    """Twenty threads, one key: one effect; the others get 409, or the response."""

    def send(_: int) -> tuple[int, bool]:
        try:
            response = Caller(token.key)("/api/charges")
            return response.status_code, replayed(response)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(send, range(20)))
    assert effects() == 1
    assert answers.count((200, False)) == 1
    assert {status for status, _ in answers} <= {200, InProgress.status}
    assert replayed(call("/api/charges"))


def test_ten_tasks_at_once_are_one(token: Token) -> None:
    """The same for an async operation, in one event loop."""

    async def send() -> int:
        headers = {"Authorization": f"Bearer {token.key}", "Idempotency-Key": KEY}
        body = {"amount": 5, "how": "slow"}
        response = await AsyncClient().post(
            "/api/async/charges", body, content_type="application/json", headers=headers
        )
        return response.status_code

    async def send_all() -> list[int]:
        return list(await asyncio.gather(*(send() for _ in range(10))))

    statuses = async_to_sync(send_all)()
    assert (effects(), statuses.count(200)) == (1, 1)
    assert set(statuses) <= {200, 409}


def test_a_cancelled_operation_keeps_its_key(token: Token) -> None:
    """The work may still be running elsewhere: only the lease frees the key."""

    ENTERED.clear()

    async def leave() -> None:
        headers = {"Authorization": f"Bearer {token.key}", "Idempotency-Key": KEY}
        body = {"amount": 5, "how": "slow"}
        sending = asyncio.ensure_future(
            AsyncClient().post(
                "/api/async/charges", body, content_type="application/json", headers=headers
            )
        )
        await asyncio.wait_for(ENTERED.wait(), 20)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

    async_to_sync(leave)()
    assert IdempotencyRecord.objects.get().status == RecordStatus.RUNNING
    assert Caller(token.key)("/api/async/charges", {"amount": 5, "how": "slow"}).status_code == 409


# ---------------------------------------------------------------------------------- ATOMIC_REQUESTS


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)


@pytest.mark.usefixtures("atomic_requests")
def test_each_operation_of_a_path_has_its_transaction(call: Caller) -> None:
    """With a key and without: the claim of the guarded one joins it."""
    assert call("/api/orders/7", method="GET").json()["atomic"] is True
    assert call("/api/orders/7", method="PUT", key=None).json()["atomic"] is True
    assert call("/api/orders/13", method="PUT", key=None).status_code == 500
    assert effects() == 1
    first, retry = call("/api/orders/7", "x"), call("/api/orders/7", "x")
    assert (first.status_code, retry.content, replayed(retry), effects()) == (
        200,
        first.content,
        True,
        2,
    )


@pytest.mark.usefixtures("atomic_requests")
@pytest.mark.parametrize("key", [None, KEY], ids=["without a key", "with a key"])
@pytest.mark.parametrize(
    ("how", "status", "written"),
    [("raise", 500, 0), ("denied", 403, 0), ("http-error", 402, 1), ("refused", 409, 1)],
)
def test_writes_mean_the_same_with_a_key_under_atomic_requests(
    call: Caller, key: str | None, how: str, status: int, written: int
) -> None:
    """What ninja handles is committed. What it raises is not, even if Django handles it."""
    assert call("/api/charges", {"amount": 5, "how": how}, key=key).status_code == status
    assert effects() == written


def trace(
    call: Caller, url: str, how: str, key: str | None, method: str = "POST"
) -> tuple[Any, list[str]]:
    """Send. Return the response, and each statement, BEGIN and COMMIT among them."""
    TokenFactory(user=User.objects.get(), key=call.token)
    with CaptureQueriesContext(connection) as queries:
        response = call(
            url,
            {"amount": 5 if how != "unprocessable" else "many", "how": how},
            key=key,
            method=method,
        )
    Token.objects.all().delete()
    statements = [
        re.sub(r"'[^']*'|\b\d[\d.]*\b|_s\d+\w*|s\d+_x\d+", "?", str(query["sql"]))
        for query in queries
    ]
    return (
        response.status_code,
        re.sub(rb"\d+", b"?", response.content),
        response.get("X-After"),
    ), statements


def begun(statements: list[str]) -> list[int]:
    """Return where transactions begin."""
    return [n for n, sql in enumerate(statements) if sql.startswith("BEGIN")]


@pytest.mark.usefixtures("atomic_requests", "user")
@pytest.mark.parametrize("url", ["/charges", "/decorated"])
def test_without_a_key_nothing_differs_under_atomic_requests(url: str) -> None:
    """The same response, by the same statements in the same transactions, as from an operation that
    we do not guard.
    """
    call = Caller("token")
    hows = (
        "schema",
        "http-error",
        "denied",
        "refused",
        "invalid",
        "500",
        "raise",
        "integrity",
        "unprocessable",
    )
    for method, how in [*(("POST", how) for how in hows), ("GET", "not allowed")]:
        bare, guarded = (
            trace(call, f"/{api}{url}", how, None, method) for api in ("bare", "guarded")
        )
        assert guarded == bare, how
        assert begun(bare[1]) == [0], how


@pytest.mark.usefixtures("atomic_requests", "user")
@pytest.mark.parametrize("url", ["/charges", "/decorated"])
def test_with_a_key_it_is_one_transaction(url: str) -> None:
    """It spans authentication, validation and function, and what a decorator does with the
    response.
    """
    answered, statements = trace(Caller("token"), f"/guarded{url}", "schema", KEY)
    assert (answered[0], len(begun(statements))) == (200, 1)
    work = next(
        n
        for n, sql in enumerate(statements)
        if sql.startswith("INSERT") and "payments_effect" in sql
    )
    assert begun(statements)[0] < next(n for n, sql in enumerate(statements) if "authtoken" in sql)
    assert not [sql for sql in statements[:work] if sql in ("COMMIT", "ROLLBACK")]


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite locks no rows")
@pytest.mark.usefixtures("atomic_requests")
@pytest.mark.parametrize("key", [None, KEY])
def test_a_lock_of_the_authentication_holds_in_the_function(call: Caller, key: str | None) -> None:
    """With a key and without; the claim is in the same transaction, so others see it only after the
    COMMIT.
    """
    assert call("/guarded/locks", key=key).json() == {"locked": True, "claimed": False}


@pytest.mark.usefixtures("atomic_requests")
@pytest.mark.parametrize("how", ["raise", "500", "invalid"])
def test_a_one_time_token_is_not_used_up_by_a_failure(call: Caller, how: str) -> None:
    """What authentication consumed is rolled back with the work, so the keyed retry is
    authenticated.
    """
    send = functools.partial(call, "/guarded/charges", {"amount": 5, "how": f"{how} then schema"})
    assert send().status_code == 500
    assert (Token.objects.count(), effects(), IdempotencyRecord.objects.count()) == (1, 0, 0)
    assert send().status_code == 200
    assert (Token.objects.count(), effects(), IdempotencyRecord.objects.get().attempt) == (0, 1, 1)
    assert send().status_code == 401


@pytest.mark.usefixtures("atomic_requests")
def test_what_decorate_view_wrote_before_is_rolled_back_with_a_failure(call: Caller) -> None:
    """The decorator is inside the transaction, as without us; a replay commits its write, as an
    early response does.
    """
    Effect.objects.create(label="token")
    send = functools.partial(call, "/guarded/decorated", {"amount": 5, "how": "raise then schema"})
    assert send().status_code == 500
    assert list(Effect.objects.values_list("label", flat=True)) == ["token"]
    first, retry = send(), send()
    assert (retry.content, replayed(retry), retry["X-After"]) == (first.content, True, "yes")
    assert list(Effect.objects.order_by("pk").values_list("label", flat=True)) == [
        "ninja",
        "after",
        "after",
    ]


# -------------------------------------------------------------------------- what the guard responds


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic requests", "none"])
def test_a_lost_transaction_is_a_503(
    call: Caller, request: pytest.FixtureRequest, atomic: bool
) -> None:
    """A handler for everything does not turn it into a 500: nothing was committed, and the retry
    does the work.
    """
    if atomic:
        request.getfixturevalue("atomic_requests")
    lost = call("/losing/transaction")
    assert (lost.status_code, lost.json()["code"], effects()) == (503, "transaction-lost", 0)
    IdempotencyRecord.objects.update(lease_until=F("created_at"))  # the lease of the claim is over
    assert (call("/losing/transaction").status_code, effects()) == (200, 2)


@pytest.mark.parametrize("url", ["/losing/store", "/losing/async/store"])
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic requests", "none"])
def test_a_derived_key_without_a_store_is_a_503(
    call: Caller,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    atomic: bool,
) -> None:
    """A handler for everything does not make it a 500. What the function has written stays: no
    transaction is open around a lease, also under ATOMIC_REQUESTS.
    """
    if atomic:
        request.getfixturevalue("atomic_requests")

    def down(*args: Any, **kwargs: Any) -> Any:
        raise StoreUnavailable

    monkeypatch.setattr(ORMStore, "claim", down)
    stopped = call(url)
    assert (stopped.status_code, stopped.json()["code"]) == (503, "store-unavailable")
    assert effects() == ("async" not in url)


# ------------------------------------------------------------------------------ ninja's test client

#: Ninja's test client does not capitalise the names of headers, as a server does.
CAPITALS = {"IDEMPOTENCY-KEY": KEY}


# ------------------------------------------------------------------------------------- wrong places


def test_in_decorate_view_it_is_refused() -> None:
    """It would be outside of ninja's authentication: the error names the operation, at import."""
    fresh = NinjaAPI(urls_namespace="decorated")
    with pytest.raises(
        ImproperlyConfigured, match=r"'/charges' would replay before ninja has authenticated"
    ):

        @fresh.post("/charges")
        @decorate_view(idempotent())
        def wrong(request: HttpRequest) -> None: ...


def test_above_the_operation_it_is_refused() -> None:
    """Ninja has the bare function by then."""
    fresh = NinjaAPI(urls_namespace="above")
    with pytest.raises(ImproperlyConfigured, match="Swap the two lines"):

        @idempotent()
        @fresh.post("/charges")
        def wrong(request: HttpRequest) -> None: ...


def test_an_async_operation_cannot_be_atomic() -> None:
    """No transaction can span an await: the error says what to type, at import."""
    fresh = NinjaAPI(urls_namespace="atomic")
    with pytest.raises(ImproperlyConfigured, match=r'guarantee="lease"'):

        @fresh.post("/charges")
        @idempotent()
        async def wrong(request: HttpRequest) -> None: ...


def test_a_generator_is_refused() -> None:
    """A generator runs while its response is sent, when the guard has ended."""

    async def events(request: HttpRequest) -> AsyncIterator[int]:
        yield 1

    def rows(request: HttpRequest) -> Iterator[int]:
        yield 1

    for wrong in (events, rows):
        with pytest.raises(ImproperlyConfigured, match="is a generator"):
            idempotent(guarantee="lease")(wrong)


def test_a_decorator_without_wraps_is_found_before_anything_runs(call: Caller) -> None:
    """It hides our hook from ninja: a keyed request raises, and never runs unguarded."""
    call.client.raise_request_exception = True
    assert call("/own/hidden", key=None).status_code == 200
    before = effects()
    assert call("/own/hidden").status_code == 500  # the API's handler for everything
    assert effects() == before
    request = call("/own/hidden", key=None).wsgi_request
    request.META["HTTP_IDEMPOTENCY_KEY"] = KEY
    with pytest.raises(ConfigurationError, match=r"functools\.wraps"):
        hidden(request)


def test_inside_a_guarded_operation_another_is_a_function(call: Caller) -> None:
    """A guarded function that a guarded operation calls joins its guard."""
    fresh = NinjaAPI(urls_namespace="nested")

    @fresh.post("/outer")
    @idempotent(anonymous="shared")
    def outer(request: HttpRequest) -> Any:
        return by_api_key(request)

    client = ninja.testing.TestClient(fresh)
    first, retry = (client.post("/outer", headers=CAPITALS) for _ in range(2))
    assert (first.status_code, retry.content, effects()) == (200, first.content, 1)


def test_decorate_view_stands_outside_of_the_guard(call: Caller) -> None:
    """Above or below @idempotent(), what it adds is added to a replay as well."""
    fresh = NinjaAPI(urls_namespace="outside")

    def stamping(run: Any) -> Any:
        @functools.wraps(run)
        def stamped(request: HttpRequest, **kw: Any) -> Any:
            response = run(request, **kw)
            response["X-Seen"] = str(int(response.get("X-Seen", 0)) + 1)
            return response

        return stamped

    @fresh.post("/above")
    @decorate_view(stamping)
    @idempotent(anonymous="shared")
    def above(request: HttpRequest) -> int:
        return work(request).pk

    @fresh.post("/below")
    @idempotent(anonymous="shared")
    @decorate_view(stamping)
    def below(request: HttpRequest) -> int:
        return work(request).pk

    client = ninja.testing.TestClient(fresh)
    for url in ("/above", "/below"):
        first, retry = (
            client.post(url, headers={"IDEMPOTENCY-KEY": KEY + url[1:]}) for _ in range(2)
        )
        assert (first["X-Seen"], retry["X-Seen"], retry.content) == ("1", "1", first.content)
    assert effects() == 2


# ------------------------------------------------------------------------------------------ observe


@SYNC_AND_ASYNC
def test_an_observed_operation_runs_each_time(call: Caller, url: str, observed: Observed) -> None:
    """A retry runs again, and is reported."""
    responses = [call(url), call(url), call(url, {"amount": 6})]
    assert [(each.status_code, each["Idempotency-Status"]) for each in responses] == [
        (200, "observed")
    ] * 3
    assert observed.would == ["run", "replay", "request-mismatch"]
    assert effects() == 3


@pytest.mark.usefixtures("atomic_requests")
def test_an_observed_operation_under_atomic_requests(call: Caller, observed: Observed) -> None:
    """Its record is written after the transaction."""
    assert [call("/api/charges").status_code for _ in range(2)] == [200, 200]
    assert observed.would == ["run", "replay"]
