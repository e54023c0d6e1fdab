"""A store whose server is away, frozen, killed or restarted, before and during the view, with real
processes.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client
from django.urls import path
from pytest_django import Settings
from redis import Redis

from django_idempotency import idempotent
from django_idempotency.core.records import Outcome, Settlement, Status, Ticket
from django_idempotency.errors import StoreRefused, StoreUnavailable
from django_idempotency.stores.redis import RedisStore
from django_idempotency.testing.tickets import make_ticket
from testproject.payments.models import Effect

from ..support.services import needs_redis
from ..support.store_servers import AWSServer, RedisServer, Server, running
from .dynamodb.server import make_store, make_table, session

pytestmark = [
    needs_redis,
    pytest.mark.faults,
    pytest.mark.either_server,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

TERMS: dict[str, Any] = {"guarantee": "lease", "store": "remote", "lease": 2}
#: What the view does to the server while it runs.
MEANWHILE: list[Callable[[], None]] = []


def work() -> JsonResponse:
    Effect.objects.create(label="work")
    for act in MEANWHILE:
        act()
    return JsonResponse({"charged": True}, status=201)


@idempotent(**TERMS)
def closed(request: HttpRequest) -> HttpResponse:
    return work()


@idempotent(**TERMS, on_store_failure="open")
def opened(request: HttpRequest) -> HttpResponse:
    return work()


@idempotent(**TERMS)
async def aclosed(request: HttpRequest) -> HttpResponse:
    return await sync_to_async(work)()


@idempotent(**TERMS, on_store_failure="open")
async def aopened(request: HttpRequest) -> HttpResponse:
    return await sync_to_async(work)()


urlpatterns = [
    path("closed/", closed),
    path("open/", opened),
    path("async/", aclosed),
    path("async/open/", aopened),
]
#: Name → how a server goes away. A stop is an orderly one: it writes its log, and closes its
#: connections.
TROUBLES = {"frozen": Server.freeze, "killed": Server.kill, "stopped": Server.stop}


@pytest.fixture(autouse=True)
def nothing_meanwhile() -> None:
    MEANWHILE.clear()


def use(settings: Settings, backend: str, **options: Any) -> None:
    options["timeout"] = 1  # more than twice the defaults: a server with a busy disk is not away
    settings.IDEMPOTENCY = {
        "STORES": {
            "default": {"BACKEND": "django_idempotency.stores.orm.ORMStore"},
            "remote": {"BACKEND": f"django_idempotency.stores.{backend}", "OPTIONS": options},
        }
    }


@pytest.fixture
def redis(tmp_path: Path, settings: Settings) -> Iterator[RedisServer]:
    """A server that keeps what it has confirmed: its log is on disk at each write."""
    with running(RedisServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always")) as server:
        settings.CACHES = {
            "redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}
        }
        use(settings, "redis.RedisStore", cache="redis")
        yield server


@pytest.fixture
def dynamodb_server(settings: Settings) -> Iterator[AWSServer]:
    with running(AWSServer()) as server:
        options = {"table": "records", "endpoint_url": server.url, "session": session()}
        make_table(make_store(server.url, **options))
        use(settings, "dynamodb.DynamoDBStore", **options)
        yield server


@pytest.fixture(params=["redis", "dynamodb_server"])
def server(request: pytest.FixtureRequest) -> Server:
    served: Server = request.getfixturevalue(request.param)
    return served


@pytest.fixture
def send(django_user_model: type[User]) -> Callable[..., Any]:
    user = django_user_model.objects.create_user("ada")
    client, aclient = Client(), AsyncClient()
    client.force_login(user)
    aclient.force_login(user)

    def send(url: str) -> Any:
        post: Any = async_to_sync(aclient.post) if url.startswith("/async/") else client.post
        return post(
            url, "{}", content_type="application/json", headers={"Idempotency-Key": "key-1"}
        )

    return send


def sent_until_there(send: Callable[..., Any], url: str) -> Any:
    """Send as a client does that repeats a 503: a server on a busy machine may need more than a
    second to respond.
    """
    response = send(url)
    for _ in range(9):
        if response.status_code == 503:
            response = send(url)
    return response


@pytest.mark.parametrize("url", ["/closed/", "/async/"])
@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_before_the_view(server: Server, send: Callable[..., Any], url: str, trouble: Any) -> None:
    """The client gets 503 after about a second at most, and nothing has run.

    A server that is back responds again.
    """
    assert sent_until_there(send, url).status_code == 201
    trouble(server)
    began = time.monotonic()
    refused = send(url)
    assert time.monotonic() - began < 4.5  # one is promised; the drivers' own defaults are 5 and 60
    assert (refused.status_code, refused.json()["code"], refused["Retry-After"]) == (
        503,
        "store-unavailable",
        "1",
    )
    assert Effect.objects.count() == 1
    if trouble is Server.freeze:
        server.thaw()
    elif isinstance(server, RedisServer):
        server.start()
    else:
        return  # its memory is gone
    assert sent_until_there(send, url)["Idempotent-Replayed"] == "true"
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("url", ["/open/", "/async/open/"])
@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_open(
    server: Server,
    send: Callable[..., Any],
    url: str,
    trouble: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A route that prefers to run says so in its response, and in an error log, after a second at
    most.
    """
    trouble(server)
    began = time.monotonic()
    with caplog.at_level(logging.ERROR, "django_idempotency"):
        answer = send(url)
    assert time.monotonic() - began < 4.5  # see test_before_the_view
    assert (answer.status_code, answer["Idempotency-Degraded"], Effect.objects.count()) == (
        201,
        "true",
        1,
    )
    assert events(caplog) == ["unavailable"]


@pytest.mark.parametrize("url", ["/closed/", "/async/"])
@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
@pytest.mark.usefixtures("deferring")
def test_during_the_view(
    server: Server,
    send: Callable[..., Any],
    url: str,
    trouble: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The work is done: the caller gets its response, and a warning says that the record is still
    to be settled.
    """
    MEANWHILE.append(lambda: trouble(server))
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        answer = send(url)
    assert (answer.status_code, Effect.objects.count()) == (201, 1)
    # Lost if its lease has ended first.
    assert set(events(caplog)) in (
        {"deferred"},
        {"lost"},
        {"deferred", "lost"},
    )


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the events of this call; an earlier test's lease may miss a beat in the meantime."""
    return [
        record.idempotency["event"] for record in caplog.records if hasattr(record, "idempotency")
    ]


@pytest.mark.parametrize("url", ["/closed/", "/async/"])
def test_restarted_during_the_view(redis: RedisServer, send: Callable[..., Any], url: str) -> None:
    """A server that is back by the settle has the claim from its log, and accepts the response."""

    MEANWHILE.append(redis.restart)
    assert send(url).status_code == 201
    MEANWHILE.clear()
    assert (send(url)["Idempotent-Replayed"], Effect.objects.count()) == ("true", 1)


@pytest.mark.usefixtures("deferring")
def test_restarted_without_its_table(
    dynamodb_server: AWSServer, send: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A server that returns empty, during the view or before it, counts as unavailable: never a
    500.
    """
    MEANWHILE.append(dynamodb_server.restart)
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        assert send("/closed/").status_code == 201
    # Lost if its lease has ended first.
    assert set(events(caplog)) in (
        {"deferred"},
        {"lost"},
        {"deferred", "lost"},
    )
    MEANWHILE.clear()
    refused = send("/closed/")
    assert (refused.status_code, refused.json()["code"], Effect.objects.count()) == (
        503,
        "store-unavailable",
        1,
    )
    make_table(make_store(dynamodb_server.url, table="records"))
    assert send("/closed/").status_code == 201
    assert (send("/closed/")["Idempotent-Replayed"], Effect.objects.count()) == ("true", 2)


def test_a_settle_is_tried_again(server: Server, send: Callable[..., Any]) -> None:
    """A short freeze costs time, but no record."""

    def blink() -> None:
        server.freeze()
        threading.Timer(0.7, server.thaw).start()

    MEANWHILE.append(blink)
    assert send("/closed/").status_code == 201
    MEANWHILE.clear()
    assert (send("/closed/")["Idempotent-Replayed"], Effect.objects.count()) == ("true", 1)


def assert_answered_all_the_same() -> None:
    """Reads need no replica: only writes wait for one."""
    done = make_ticket(key="done")
    alone, safe = (
        RedisStore(cache="redis", timeout=5),
        RedisStore(cache="redis", min_replicas=1, timeout=5),
    )
    alone.claim(done)
    settled = Settlement(
        status=Status.COMPLETED,
        fence=done.owner,
        attempt=1,
        digest=done.digest,
        operation=done.owner,
        outcome=Outcome(status=201),
    )
    assert alone.settle(done, settled)
    assert safe.claim(make_ticket(key="done")).status is Status.COMPLETED


def test_a_primary_that_became_a_replica(redis: RedisServer) -> None:
    """Its connections are dropped: the same address may have a new primary."""
    store = RedisStore(cache="redis", timeout=5)

    def connections() -> set[str]:
        return {client["id"] for client in admin.client_list()} - {str(admin.client_id())}

    with Redis(port=redis.port) as admin:
        store.claim(make_ticket(key="before"))
        before = connections()
        admin.replicaof("127.0.0.1", "1")
        with pytest.raises(StoreRefused):
            store.claim(make_ticket(key="during"))
        admin.replicaof("no", "one")
        store.claim(make_ticket(key="after"))
        assert not before & connections()


def test_silent_sentinels(settings: Settings) -> None:
    """Sentinels have a server's timeout, not that of redis-py's own retries."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        settings.CACHES = {
            "redis": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": "redis://mymaster/0",
                "OPTIONS": {
                    "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
                    "SENTINELS": [one.getsockname(), other.getsockname()],
                },
            }
        }
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            RedisStore(cache="redis").claim(make_ticket())
        assert time.monotonic() - began < 5  # one is promised; it was 30


def assert_written_all_the_same(safe: RedisStore) -> tuple[Ticket, Settlement]:
    """A claim that no replica has is undone, even after a lost response; meanwhile a settle is
    remembered.
    """
    alone, first, second = (
        RedisStore(cache="redis", timeout=5),
        make_ticket(key="mine"),
        make_ticket(key="mine"),
    )
    alone.claim(first)
    with pytest.raises(StoreUnavailable):
        safe.claim(first)
    assert alone.claim(second).attempt == 2
    settlement = Settlement(
        status=Status.COMPLETED,
        fence=second.owner,
        attempt=2,
        digest=second.digest,
        operation=second.owner,
        outcome=Outcome(status=201),
    )
    with pytest.raises(StoreUnavailable):
        safe.settle(second, settlement)
    assert alone.claim(first).outcome == settlement.outcome
    return second, settlement


def test_replicas(redis: RedisServer, settings: Settings, tmp_path: Path) -> None:
    """With `min_replicas` a claim that no replica has is refused, and leaves the key free."""
    store = RedisStore(cache="redis", min_replicas=1, timeout=2)  # a busy machine is not an outage
    with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
        store.claim(make_ticket())
    assert_answered_all_the_same()
    left = RedisStore(cache="redis", timeout=5).get(make_ticket().id)
    assert left is not None
    assert left.status is Status.FREE
    written = assert_written_all_the_same(store)
    (tmp_path / "replica").mkdir()
    with running(
        RedisServer(tmp_path / "replica", "--replicaof", "127.0.0.1", str(redis.port))
    ) as replica:
        deadline = time.monotonic() + 20
        record = None
        while record is None:
            assert time.monotonic() < deadline, "the replica does not connect"
            with suppress(StoreUnavailable):
                record = store.claim(make_ticket())
        patient = RedisStore(cache="redis", min_replicas=1, timeout=10)
        assert patient.settle(*written) is True
        settings.CACHES = {
            "redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": replica.url}
        }
        there = RedisStore(cache="redis", timeout=5).get(record.id)
        assert there is not None
        assert (there.owner, there.status) == (record.owner, Status.RUNNING)
