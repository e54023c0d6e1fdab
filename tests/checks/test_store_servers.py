"""What the servers under the stores respond, with --deploy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from django.core.checks import CheckMessage
from django.urls import path
from pytest_django import Settings
from redis import Redis

from django_idempotency.checks.servers import check_servers
from django_idempotency.decorators import idempotent
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.base import innermost
from django_idempotency.stores.redis import RedisStore
from tests.stores.conftest import dynamodb  # noqa: F401 - a fixture
from tests.stores.dynamodb.server import session
from tests.support.services import needs_redis
from tests.support.store_servers import RedisServer, running

from .conftest import hints

STORE = "django_idempotency.stores"
ORM = {"BACKEND": f"{STORE}.orm.ORMStore"}


def redis(cache: str = "redis", **options: Any) -> dict[str, Any]:
    return {"BACKEND": f"{STORE}.redis.RedisStore", "OPTIONS": {"cache": cache, **options}}


def fronted(front: str = "redis", authority: str = "default") -> dict[str, Any]:
    return {
        "BACKEND": f"{STORE}.layered.LayeredStore",
        "OPTIONS": {"front": front, "authority": authority},
    }


@pytest.fixture
def found(settings: Settings) -> Callable[..., list[CheckMessage]]:
    def found(url: str = "", **entries: dict[str, Any]) -> list[CheckMessage]:
        settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
        if url:
            settings.CACHES["redis"] = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}
        settings.IDEMPOTENCY = {"STORES": {"default": ORM, **entries}}
        return check_servers(databases=[])

    return found


# -------------------------------------------------------------------------------------------- Redis


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running(RedisServer(tmp_path_factory.mktemp("redis"))) as server:
        yield server


@contextmanager
def configured(server: RedisServer, **values: str) -> Iterator[None]:
    """Set a server up as a hint says, or against it."""
    with Redis(port=server.port) as client:
        before = {
            name: client.config_get(name)[name]
            for name in (key.replace("_", "-") for key in values)
        }
        for name, value in values.items():
            client.config_set(name.replace("_", "-"), value)
        yield
        for name, value in before.items():
            client.config_set(name, value)


@needs_redis
class TestRedis:
    def test_as_it_should_be(self, found: Any, server: RedisServer) -> None:
        """A server that follows the hints is silent."""
        with configured(server, appendonly="yes", maxmemory="100mb", maxmemory_policy="noeviction"):
            assert found(server.url, redis=redis()) == []

    def test_as_it_is_installed(self, found: Any, server: RedisServer) -> None:
        """W062: a fresh Redis has no append-only file."""
        assert "CONFIG SET appendonly yes" in hints(found(server.url, redis=redis()))["W062"]

    @pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "volatile-lru"])
    def test_eviction(self, found: Any, server: RedisServer, policy: str) -> None:
        """W061 if memory is limited: every record has an expiry, so "volatile" means all of
        them.
        """
        with configured(server, appendonly="yes", maxmemory="100mb", maxmemory_policy=policy):
            (message,) = found(server.url, redis=redis())
            assert "CONFIG SET maxmemory-policy noeviction" in hints([message])["W061"]
            assert "100.00M" in message.msg
            assert policy in message.msg
        with configured(server, appendonly="yes", maxmemory="0", maxmemory_policy=policy):
            assert found(server.url, redis=redis()) == []

    def test_a_front_may_forget(self, found: Any, server: RedisServer) -> None:
        """A front only keeps copies, unless it also has another role."""
        with configured(server, maxmemory="100mb", maxmemory_policy="allkeys-lru"):
            assert found(server.url, redis=redis(), fast=fronted()) == []
            keeps = found(
                server.url,
                redis=redis(),
                fast=fronted(),
                lasting=fronted("other", "redis"),
                other=redis(prefix="b"),
            )
            assert list(hints(keeps)) == ["W061", "W062"]
            assert all('["redis"]' in message.msg for message in keeps)

    def test_a_front_that_a_route_names(
        self, found: Any, server: RedisServer, settings: Settings
    ) -> None:
        """A policy may name the front as its store."""

        @idempotent(guarantee="lease", store="redis")
        def view(request: Any) -> Any: ...

        class URLs:
            urlpatterns = (path("charge/", view),)

        settings.ROOT_URLCONF = URLs
        assert list(hints(found(server.url, redis=redis(), fast=fronted()))) == ["W062"]

    def test_one_server_is_asked_once(self, found: Any, server: RedisServer) -> None:
        """A server is queried once, whatever the number of its aliases."""
        assert (
            len(found(server.url, redis=redis(), again=redis(), cached=redis(local_cache=5))) == 1
        )

    def test_an_old_server(
        self, found: Any, server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """E051 for an old server."""
        monkeypatch.setattr(
            RedisStore, "about", lambda _: {"redis_version": "4.0.14", "aof_enabled": 1}
        )
        (message,) = found(server.url, redis=redis())
        assert "Redis 5 or later" in hints([message])["E051"]
        assert "4.0.14" in message.msg

    @pytest.mark.parametrize(
        "about", [{}, {"redis_version": "unstable"}, {"redis_version": "255.255.255"}]
    )
    def test_a_server_that_reports_little(
        self,
        found: Any,
        server: RedisServer,
        monkeypatch: pytest.MonkeyPatch,
        about: dict[str, Any],
    ) -> None:
        """Another server that speaks the protocol raises no finding about what cannot be proven."""
        monkeypatch.setattr(RedisStore, "about", lambda _: about)
        assert found(server.url, redis=redis()) == []

    def test_no_right_to_ask(self, found: Any, server: RedisServer) -> None:
        """W060 if the check has no right to ask."""
        with Redis(port=server.port) as client:
            client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-info")
        url = server.url.replace("redis://", "redis://app:pw@")
        (message,) = found(url, redis=redis())
        assert "its credentials" in hints([message])["W060"]
        assert "info" in message.msg

    def test_frozen(self, found: Any, server: RedisServer) -> None:
        """W060 for a frozen server, after its timeout."""
        server.freeze()
        try:
            assert list(hints(found(server.url, redis=redis()))) == ["W060"]
        finally:
            server.thaw()


def test_redis_is_away(found: Any) -> None:
    """W060 instead of a traceback, with the driver's words."""
    (message,) = found("redis://127.0.0.1:1/0", redis=redis())
    assert "check --deploy again" in hints([message])["W060"]
    assert "127.0.0.1:1" in message.msg


# ----------------------------------------------------------------------------------------- DynamoDB


class TestDynamoDB:
    @pytest.fixture
    def entry(self, dynamodb: str) -> Iterator[dict[str, Any]]:  # noqa: F811 - the fixture
        options = {
            "table": f"test-{uuid4()}",
            "endpoint_url": dynamodb,
            "session": session(),
            "timeout": 5,
        }
        yield {"BACKEND": f"{STORE}.dynamodb.DynamoDBStore", "OPTIONS": options}
        for alias in stores._built:
            store: Any = innermost(stores[alias])
            if hasattr(store, "client"):
                store.client.boto.close()

    def make(self) -> Any:
        for _ in stores["dynamo"].create_table():
            pass
        store: Any = stores["dynamo"]
        return store

    def test_a_missing_table(self, found: Any, entry: dict[str, Any]) -> None:
        """E052, and the hint works."""
        assert "idempotency_stores create --store=dynamo" in hints(found(dynamo=entry))["E052"]
        self.make()
        assert found(dynamo=entry) == []

    def test_nothing_is_deleted(self, found: Any, entry: dict[str, Any]) -> None:
        """W063, and the hint works."""
        found(dynamo=entry)
        store = self.make()
        off = {"Enabled": False, "AttributeName": "ttl"}
        store.client.boto.update_time_to_live(
            TableName=store.schema.table, TimeToLiveSpecification=off
        )
        assert "idempotency_stores create --store=dynamo" in hints(found(dynamo=entry))["W063"]
        self.make()
        assert found(dynamo=entry) == []

    def test_another_table(self, found: Any, entry: dict[str, Any]) -> None:
        """E053: other keys, or another attribute for the expiry."""
        found(dynamo=entry)
        self.make()
        for options in ({"sort_key_attr": "SK"}, {"attributes": {"ttl": "gone"}}):
            (message,) = found(dynamo={**entry, "OPTIONS": {**entry["OPTIONS"], **options}})
            assert "key_attr" in hints([message])["E053"]
            assert entry["OPTIONS"]["table"] in message.msg

    def test_away(self, found: Any, entry: dict[str, Any]) -> None:
        """W060 for an unreachable DynamoDB."""
        options = {**entry["OPTIONS"], "endpoint_url": "http://127.0.0.1:1", "timeout": 0.2}
        (message,) = found(
            dynamo={**entry, "OPTIONS": options}, cached={**entry, "OPTIONS": options}
        )[:1]
        assert "Could not connect" in message.msg
        assert "W060" in hints([message])

    def test_no_region(self, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Any error that boto3 raises for a bad configuration is reported."""
        pytest.importorskip("boto3")
        (message,) = found(
            dynamo={
                "BACKEND": f"{STORE}.dynamodb.DynamoDBStore",
                "OPTIONS": {"endpoint_url": "nowhere"},
            }
        )
        assert "W060" in hints([message])


def test_stores_of_others_are_left_alone(found: Any) -> None:
    """Third-party stores and broken settings are left alone."""
    assert found() == []
    assert found(other={"BACKEND": "no.such"}) == []
