"""While async work waits for others, no connection to the database is open that a call of ours has
opened.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

import httpx
import pytest
from adrf.views import APIView
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIHandler
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path
from django.views import View
from ninja import NinjaAPI
from pytest_django import Settings
from rest_framework.response import Response

from django_idempotency import Policy, idempotent, idempotent_function
from django_idempotency.contrib.client.httpx import AsyncIdempotentClient
from django_idempotency.core.records import Guarantee
from django_idempotency.engine.threads import in_thread_of
from django_idempotency.rest_framework import IdempotentViewMixin
from django_idempotency.signals import claimed, completed
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket

from ..stores.helpers import connected_otherwise, not_sqlite
from .conftest import CHARGE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

on_postgresql = pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="Django has a pool for PostgreSQL only"
)

#: Clients that send at the same time, and connections of the pool that they share.
CROWD, POOL = 8, 4


class Provider:
    """What the work waits for. It looks which connections the thread of the request holds
    meanwhile.
    """

    held: ClassVar[list[str]] = []
    asked: ClassVar[int] = 0
    everybody_asks: ClassVar[Callable[[], Awaitable[Any]] | None] = None

    @classmethod
    async def ask(cls, *_: Any) -> None:
        cls.held += await sync_to_async(open_aliases)()
        cls.asked += 1
        if cls.everybody_asks is not None:
            await cls.everybody_asks()


def open_aliases() -> list[str]:
    return [
        each.alias for each in connections.all(initialized_only=True) if each.connection is not None
    ]


async def plain(request: HttpRequest) -> HttpResponse:
    await Provider.ask()
    return JsonResponse({}, status=201)


@idempotent(guarantee="lease")
async def decorated(request: HttpRequest) -> HttpResponse:
    return await plain(request)


@idempotent(guarantee="lease", key="body.amount", keep=lambda response: User.objects.exists())
async def selected(request: HttpRequest) -> HttpResponse:
    return await plain(request)


@idempotent(guarantee="lease")
class OfAClass(View):
    async def post(self, request: HttpRequest) -> HttpResponse:
        return await plain(request)


@idempotent_function(key="number", key_prefix="pay", guarantee="lease")
async def pay(number: str) -> None:
    await Provider.ask()


async def calls_a_function(request: HttpRequest) -> HttpResponse:
    await pay(number=request.headers["Idempotency-Key"])
    return JsonResponse({}, status=201)


@idempotent(guarantee="lease")
async def in_steps(request: HttpRequest) -> HttpResponse:
    handle: Any = request.idempotency  # type: ignore[attr-defined]
    for name in ("first", "second"):
        await handle.astep(name, Provider.ask, here=False)
    return JsonResponse({}, status=201)


@idempotent(guarantee="lease")
async def calls_a_provider(request: HttpRequest) -> HttpResponse:
    async def answer(sent: httpx.Request) -> httpx.Response:
        await Provider.ask()
        return httpx.Response(201, json={})

    async with AsyncIdempotentClient("fake", transport=httpx.MockTransport(answer)) as client:
        await client.post("http://provider.test/", json={}, extensions={"idempotency": "charge"})
    return JsonResponse({}, status=201)


class OfREST(IdempotentViewMixin, APIView):
    authentication_classes = ()
    permission_classes = ()
    idempotency = Policy(guarantee="lease", scope=lambda request: "shop")

    async def post(self, request: Any) -> Response:
        await Provider.ask()
        return Response({}, status=201)


ninja = NinjaAPI(urls_namespace="connections")


@ninja.post("charges")
@idempotent(guarantee="lease")
async def of_ninja(request: HttpRequest) -> dict[str, str]:
    await Provider.ask()
    return {}


urlpatterns = [
    path("decorated/", decorated),
    path("selected/", selected),
    path("class/", OfAClass.as_view()),
    path("middleware/", plain),
    path("function/", calls_a_function),
    path("steps/", in_steps),
    path("provider/", calls_a_provider),
    path("rest/", OfREST.as_view()),
    path("ninja/", ninja.urls),
]
WAYS = [
    *(
        "/decorated/",
        "/selected/",
        "/class/",
        "/middleware/",
        "/function/",
        "/steps/",
        "/provider/",
        "/rest/",
    ),
    "/ninja/charges",
]


@pytest.fixture(autouse=True)
def project(settings: Settings) -> Iterator[None]:
    """Let everything be a lease, and audited. No view asks for a token of CSRF."""
    settings.IDEMPOTENCY = {
        "GUARANTEE": "lease",
        "PROVIDERS": {"fake": {"LIFETIME": timedelta(days=1)}},
    }
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "csrf" not in name]
    Provider.held, Provider.asked, Provider.everybody_asks = [], 0, None
    yield
    Provider.everybody_asks = None


@pytest.fixture
def cookies(user: User) -> dict[str, str]:
    client = Client()
    client.force_login(user)
    return {name: morsel.value for name, morsel in client.cookies.items()}


async def send(url: str, cookies: dict[str, str], keys: list[str]) -> list[httpx.Response]:
    """Send one request a key at the same time, each with a thread of its own, as an ASGI server
    does.
    """
    application: Any = ASGIHandler()
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://testserver", cookies=cookies
    ) as client:
        sending = [client.post(url, json=CHARGE, headers={"Idempotency-Key": key}) for key in keys]
        return list(await asyncio.gather(*sending))


@not_sqlite
@pytest.mark.either_server
@pytest.mark.parametrize("url", WAYS)
def test_work_that_waits_holds_no_connection(cookies: dict[str, str], url: str) -> None:
    """What admission, claim, audit and steps have opened is closed before the work, of each way to
    guard it.
    """
    (response,) = asyncio.run(send(url, cookies, ["first"]))
    assert response.status_code in {200, 201}, response.content
    assert (Provider.held, Provider.asked > 0) == ([], True)


@not_sqlite
@pytest.mark.either_server
def test_what_the_project_has_opened_stays_open() -> None:
    """A connection that was open before the claim stays, with the settings of its session."""

    def opened() -> Any:
        connection.ensure_connection()
        return connection.connection

    async def claim() -> bool:
        before = await sync_to_async(opened)()
        store = ORMStore()
        await in_thread_of(store, store.claim, make_ticket(guarantee=Guarantee.LEASE))
        return before is await sync_to_async(opened)()

    assert async_to_sync(claim)()


class Far(MemoryStore):
    """Is called as if a server had its records."""

    in_process = False


@not_sqlite
@pytest.mark.either_server
@pytest.mark.parametrize("is_async", [False, True])
def test_a_receiver_gives_its_connection_back(settings: Settings, *, is_async: bool) -> None:
    """A store with a server of its own takes another thread, and what receivers open there is
    closed, too.
    """
    settings.IDEMPOTENCY = {"STORES": {"default": {"BACKEND": f"{__name__}.Far"}}}
    used: list[Any] = []

    def receiver(**_: Any) -> None:
        User.objects.exists()
        used.append(connections["default"])

    async def areceiver(**_: Any) -> None:
        await sync_to_async(receiver)()

    given: Any = areceiver if is_async else receiver
    for signal in (claimed, completed):
        signal.connect(given)
    try:
        asyncio.run(pay(number="one"))
    finally:
        for signal in (claimed, completed):
            signal.disconnect(given)
    assert [each.connection for each in used] == [None, None]


def sessions(name: str) -> int:
    """Count the sessions of a program of this name on PostgreSQL, in one of another name."""
    other = connections.create_connection("default")
    other.settings_dict = {**other.settings_dict, "OPTIONS": {"application_name": "looking"}}
    with other.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
            "application_name = %s",
            [name],
        )
        found = int(cursor.fetchone()[0])
    other.close()
    return found


async def all_ask(
    url: str, cookies: dict[str, str], look: Callable[[], int]
) -> tuple[list[int], int]:
    """Let a crowd wait for the provider at once, and look.

    Return the statuses of the responses, and what was seen.
    """
    answered = asyncio.Event()
    Provider.everybody_asks = answered.wait
    sending = asyncio.create_task(send(url, cookies, [f"key-{number}" for number in range(CROWD)]))
    until = time.monotonic() + 15  # those that were refused do not ask
    # It ends otherwise, too.
    while Provider.asked < CROWD and not sending.done() and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    seen = await asyncio.to_thread(look)
    answered.set()
    return [response.status_code for response in await sending], seen


@on_postgresql
def test_a_crowd_holds_no_connections(cookies: dict[str, str]) -> None:
    """Of eight views that wait, the server sees no session."""
    with connected_otherwise(
        OPTIONS={**connection.settings_dict["OPTIONS"], "application_name": "crowd"}
    ):
        assert asyncio.run(all_ask("/decorated/", cookies, partial(sessions, "crowd"))) == (
            [201] * CROWD,
            0,
        )


@on_postgresql
def test_a_small_pool_serves_a_crowd(cookies: dict[str, str]) -> None:
    """Eight views that wait share a pool of four connections, and none is refused."""
    pool = {"min_size": 1, "max_size": POOL, "timeout": 5}
    with connected_otherwise(OPTIONS={**connection.settings_dict["OPTIONS"], "pool": pool}):
        statuses, _ = asyncio.run(all_ask("/decorated/", cookies, lambda: 0))
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
    assert statuses == [201] * CROWD
