"""Async views: a lease, since no transaction can cover them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.utils.functional import SimpleLazyObject
from django.views import View

from django_idempotency import BufferedStreams, idempotent
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect

from .conftest import CHARGE, KEY, effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


async def write() -> None:
    await Effect.objects.acreate(label="written", idempotency_key="", attempt=0)


async def end(request: HttpRequest) -> HttpResponse:
    await write()
    match request.headers["How"]:
        case "raise":
            raise LookupError
        case "404":
            raise Http404
        case "cancel":
            raise asyncio.CancelledError
        case "template":
            return TemplateResponse(
                request, engines["django"].from_string("Charged {{ sum }}"), {"sum": 3}
            )
        case how:
            handle: Any = getattr(request, "idempotency", None)
            return JsonResponse({"attempt": handle.attempt if handle else 0}, status=int(how))


@idempotent(guarantee="lease")
async def leased(request: HttpRequest) -> HttpResponse:
    return await end(request)


@idempotent(guarantee="lease", on_failure="hold")
async def holding(request: HttpRequest) -> HttpResponse:
    return await end(request)


@idempotent(guarantee="lease")
class Leased(View):
    async def post(self, request: HttpRequest) -> HttpResponse:
        return await end(request)


def rows() -> Iterator[str]:
    yield f"{Effect.objects.create(label='row', idempotency_key='', attempt=0).pk}"


@idempotent(guarantee="lease", extensions=[BufferedStreams()])
async def streamed(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(rows())


@idempotent(guarantee="lease", keep=lambda response: Effect.objects.exists())
async def asked(request: HttpRequest) -> HttpResponse:
    return await end(request)


class Tokens:
    """Identifies users by a header, as a project's middleware for tokens does, at once or
    lazily.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        name = request.headers["Token"]
        known: Any = partial(User.objects.get, username=name)
        found: Any = SimpleLazyObject(known) if request.headers["Known"] == "lazily" else known()
        request.user = found
        return self.get_response(request)


urlpatterns = [
    path("streamed/", streamed),
    path("asked/", asked),
    path("leased/", leased),
    path("holding/", holding),
    path("class/", Leased.as_view()),
    path("middleware/", end),
]


@pytest.fixture
def send(user: User) -> Any:
    client = AsyncClient(raise_request_exception=False)
    client.force_login(user)

    def send(url: str, how: str = "201", body: Any = CHARGE, key: str = KEY) -> Any:
        headers = {"How": how, "Idempotency-Key": key}
        return async_to_sync(client.post)(
            url, body, content_type="application/json", headers=headers
        )

    return send


@pytest.fixture
def lease_for_the_project(settings: Any) -> None:
    settings.IDEMPOTENCY = {"GUARANTEE": "lease"}


@pytest.mark.parametrize("url", ["/leased/", "/class/", "/middleware/"])
@pytest.mark.usefixtures("lease_for_the_project")
def test_a_retry_gets_the_first_answer(send: Any, url: str) -> None:
    """A retry gets the first response: from an async function, an async class, and async under the
    middleware.
    """
    first, retry = send(url), send(url)
    assert (first.status_code, retry.content, retry["Idempotent-Replayed"]) == (
        201,
        first.content,
        "true",
    )
    assert send(url, body={"amount": 1}).status_code == 422
    assert effects() == 1


@pytest.mark.parametrize("url", ["/leased/", "/class/", "/middleware/"])
@pytest.mark.parametrize("how", ["raise", "500"])
@pytest.mark.usefixtures("lease_for_the_project")
def test_a_failure_frees_the_key(send: Any, url: str, how: str) -> None:
    """A failure frees the key and keeps the downstream key, so the next attempt may run at once."""
    assert [send(url, how).status_code, send(url, how).status_code] == [500, 500]
    record = IdempotencyRecord.objects.get()
    assert (record.status, record.attempt) == (Status.FREE, 2)


@pytest.mark.parametrize("url", ["/leased/", "/class/", "/middleware/"])
@pytest.mark.usefixtures("lease_for_the_project")
def test_a_raised_refusal_is_the_response_that_it_becomes(send: Any, url: str) -> None:
    """A raised refusal is remembered as the response below 500 that Django makes of it, as in a
    sync view.
    """
    first, retry = send(url, "404"), send(url, "404")
    assert (first.status_code, retry.content, retry["Idempotent-Replayed"]) == (
        404,
        first.content,
        "true",
    )
    assert effects() == 1


def test_a_failure_may_hold_the_key(send: Any) -> None:
    """With on_failure="hold" the key is busy until the lease ends."""
    assert send("/holding/", "raise").status_code == 500
    busy = send("/holding/", "201")
    assert (busy.status_code, busy.json()["code"]) == (409, "in-progress")
    assert 25 <= int(busy["Retry-After"]) <= 30


def test_a_cancelled_view_never_frees_its_key(user: User) -> None:
    """The work may still be running elsewhere, so only the lease frees the key."""
    request = RequestFactory().post("/leased/", headers={"How": "cancel", "Idempotency-Key": KEY})

    async def auser() -> User:
        return user

    request.auser = auser

    async def call() -> None:
        with pytest.raises(asyncio.CancelledError):
            await leased(request)

    async_to_sync(call)()
    assert IdempotencyRecord.objects.get().status == Status.RUNNING


def test_a_template_response_is_stored_as_rendered(send: Any) -> None:
    """Rendering may need the database, so it runs in a thread."""
    first, retry = send("/leased/", "template"), send("/leased/", "template")
    assert first.content == retry.content == b"Charged 3"


def test_an_async_view_under_an_atomic_middleware_is_an_error(user: User) -> None:
    """The project asked for atomic, so an async view is an error and never a silent downgrade."""
    client = AsyncClient()
    client.force_login(user)
    with pytest.raises(Exception, match='guarantee="lease"'):
        async_to_sync(client.post)("/middleware/", headers={"How": "201", "Idempotency-Key": KEY})
    assert effects() == 0


def test_a_sync_view_on_asgi(user: User, settings: Any) -> None:
    """Claim, view, settle and COMMIT run in one thread call, and are atomic as usual."""
    settings.ROOT_URLCONF = "testproject.urls"
    client = AsyncClient()
    client.force_login(user)
    answers = [
        async_to_sync(client.post)(
            url, CHARGE, content_type="application/json", headers={"Idempotency-Key": KEY + url}
        )
        for url in ("/middleware/charges/", "/plain/charges/")
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [201] * 4
    assert ["Idempotent-Replayed" in answer for answer in answers] == [False, True] * 2
    assert effects() == 2


def test_atomic_is_refused_where_it_is_written() -> None:
    """The decorator refuses atomic on an async view."""
    with pytest.raises(ImproperlyConfigured, match="async"):
        idempotent()(end)


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("known", ["at once", "lazily"])
@pytest.mark.parametrize("url", ["/leased/", "/middleware/"])
@pytest.mark.usefixtures("lease_for_the_project")
def test_a_user_whom_a_middleware_has_found(
    user: User, settings: Any, client: Any, known: str, url: str
) -> None:
    """`request.user` is the user that the view sees, although `request.auser()` knows sessions
    only.
    """
    *others, ours = settings.MIDDLEWARE
    settings.MIDDLEWARE = [*others, f"{__name__}.Tokens", ours]
    sender = client()
    post = async_to_sync(sender.post) if client is AsyncClient else sender.post
    headers = {"Token": user.username, "Known": known, "How": "201", "Idempotency-Key": KEY}
    first, retry = (
        post(url, CHARGE, content_type="application/json", headers=headers) for _ in range(2)
    )
    assert (first.status_code, retry.content, retry["Idempotent-Replayed"]) == (
        201,
        first.content,
        "true",
    )
    assert effects() == 1


@pytest.mark.parametrize("url", ["/streamed/", "/asked/"])
def test_what_an_answer_asks_of_a_database(send: Any, url: str) -> None:
    """A sync stream and the project's `keep` both run where they may use the database."""
    first, retry = send(url), send(url)
    assert (first.status_code, "Idempotent-Replayed" in retry) == (
        200 if url == "/streamed/" else 201,
        True,
    )
    assert effects() == 1
