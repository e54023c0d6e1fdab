"""Aliases of STORES: stores made of stores, a local cache before any of them, and which one is
outermost.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from django_idempotency.checks.databases import check_databases
from django_idempotency.checks.settings import check_settings
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.base import innermost, layers
from django_idempotency.stores.layered import LayeredStore
from django_idempotency.stores.layered.caches import LocalCache
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.redis import RedisStore
from testproject.payments.models import Effect
from tests.checks.conftest import hints
from tests.support.factories import AdminFactory

ORM = {"BACKEND": "django_idempotency.stores.orm.ORMStore"}
MEMORY = {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}
REDIS = {"BACKEND": "django_idempotency.stores.redis.RedisStore", "OPTIONS": {"cache": "default"}}


def layered(**options: Any) -> dict[str, Any]:
    return {"BACKEND": "django_idempotency.stores.layered.LayeredStore", "OPTIONS": options}


def cached(entry: dict[str, Any], size: Any = True) -> dict[str, Any]:
    return {**entry, "OPTIONS": {**entry.get("OPTIONS", {}), "local_cache": size}}


@pytest.fixture
def configure(settings: Settings) -> Any:
    def configure(**given: dict[str, Any]) -> None:
        settings.IDEMPOTENCY = {"STORES": given}

    # No test here connects to it.
    settings.CACHES = {
        "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    }
    return configure


class TestNested:
    def test_aliases_become_stores(self, configure: Any) -> None:
        """The stores are the same objects that the aliases refer to."""
        configure(default=layered(front="redis", authority="records"), records=ORM, redis=REDIS)
        store = stores["default"]
        assert isinstance(store, LayeredStore)
        assert store.store is stores["records"]
        assert id(store.front._front) == id(stores["redis"])
        assert isinstance(stores["redis"], RedisStore)
        assert (store.supports_atomic, store.using) == (True, "default")
        assert check_settings() == []

    def test_nested_twice(self, configure: Any) -> None:
        """A local cache before Redis before a local cache before the table."""
        configure(
            default=cached(layered(front="redis", authority="records"), 10),
            records=cached(ORM),
            redis=REDIS,
        )
        assert [type(layer).__name__ for layer in layers(stores["default"])] == [
            *["LayeredStore"] * 3,
            "ORMStore",
        ]
        assert check_settings() == []

    @pytest.mark.parametrize(
        ("given", "words", "takes"),
        [
            ({"front": "redis", "authority": "nowhere"}, "has no 'nowhere'", "front, authority"),
            (
                {"front": "redis", "authority": "default"},
                "'default' → 'default' contains itself",
                "front, authority",
            ),
            (
                {"front": "redis", "authority": "loop"},
                "'default' → 'loop' → 'default' contains itself",
                "front, authority",
            ),
            (
                {"front": "records", "authority": "records"},
                "front must be a RecordCache, not ORMStore",
                "front, authority",
            ),
            ({"front": "redis"}, "authority", "front, authority"),
            (
                {"front": "redis", "authority": None},
                "authority must be a BaseStore, not NoneType",
                "front, authority",
            ),
            ({"front": "redis", "authority": "broken"}, "['broken'] cannot be built", "using"),
        ],
    )
    def test_what_cannot_be(
        self, configure: Any, given: dict[str, Any], words: str, takes: str
    ) -> None:
        """The registry names the alias that is wrong, and the check reports that once."""
        configure(
            default=layered(**given),
            loop=layered(front="redis", authority="default")
            if given.get("authority") == "loop"
            else ORM,
            records=ORM,
            redis=REDIS,
            **(
                {"broken": {**ORM, "OPTIONS": {"usign": "x"}}}
                if given.get("authority") == "broken"
                else {}
            ),
        )
        with pytest.raises(ImproperlyConfigured) as raised:
            stores["default"]
        assert words in str(raised.value)
        found = check_settings()[0]
        assert words in found.msg
        assert f"what that takes: {takes}" in hints([found])["E012"]

    def test_a_guarantee_that_it_cannot_keep(self, configure: Any) -> None:
        """Only the authority can give `atomic`."""
        configure(default=layered(front="redis", authority="memory"), memory=MEMORY, redis=REDIS)
        assert list(hints(check_settings())) == ["E087"]

    def test_a_database_that_is_not_there(self, configure: Any) -> None:
        """It is reported once, for the store that uses it."""
        configure(
            default=layered(front="redis", authority="records"),
            records={**ORM, "OPTIONS": {"using": "nowhere"}},
            redis=REDIS,
        )
        (found,) = check_settings()
        assert (found.id, '["records"]' in found.msg) == ("django_idempotency.E014", True)


def test_other_caches_other_stores(configure: Any, settings: Settings) -> None:
    """A store on a cache is rebuilt when a test changes CACHES, as one on a database is for
    DATABASES.
    """
    configure(default=REDIS)
    before = stores["default"]
    assert stores["default"] is before
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    assert stores["default"] is not before


class TestLocalCache:
    @pytest.mark.parametrize(("value", "size"), [(True, 256), (1, 1), (5000, 5000)])
    def test_how_many(self, configure: Any, value: Any, size: int) -> None:
        configure(default=cached(ORM, value))
        store = stores["default"]
        assert isinstance(store, LayeredStore)
        front = store.front._front
        assert isinstance(front, LocalCache)
        assert (front._size, front._seconds) == (size, 60)
        assert (check_settings(), check_databases()) == ([], [])

    @pytest.mark.parametrize("value", [False, 0])
    def test_none(self, configure: Any, value: Any) -> None:
        configure(default=cached(ORM, value))
        assert isinstance(stores["default"], ORMStore)

    @pytest.mark.parametrize("value", [-1, "yes", None, 1.5, [256]])
    def test_nonsense(self, configure: Any, value: Any) -> None:
        configure(default=cached(ORM, value))
        with pytest.raises(ImproperlyConfigured, match="local_cache"):
            stores["default"]
        (found,) = check_settings()
        assert found.id == "django_idempotency.E012"
        assert "local_cache" in found.msg

    def test_of_any_store(self, configure: Any) -> None:
        configure(default=cached(MEMORY))
        assert isinstance(innermost(stores["default"]), MemoryStore)
        assert not stores["default"].supports_atomic


class TestForemost:
    def test_over_the_same_table(self, configure: Any) -> None:
        """The outermost layer of a store's records is found from any of their stores."""
        configure(
            default=ORM,
            fast=layered(front="redis", authority="cached"),
            cached=cached(ORM),
            redis=REDIS,
            other={**ORM, "OPTIONS": {"using": "elsewhere"}},
            broken=layered(front="default", authority="default"),
        )
        assert all(
            stores.outermost(stores[alias]) is stores["fast"]
            for alias in ("default", "cached", "fast")
        )
        assert stores.outermost(stores["other"]) is stores["other"]
        assert stores.outermost(stores["redis"]) is stores["redis"]

    def test_over_the_same_store(self, configure: Any) -> None:
        configure(default=MEMORY, fast=layered(front="redis", authority="default"), redis=REDIS)
        assert stores.outermost(stores["default"]) is stores["fast"]

    def test_over_the_same_keys(self, configure: Any) -> None:
        """Two aliases with the same cache and prefix are one store."""
        other = {**REDIS, "OPTIONS": {"cache": "default", "prefix": "other"}}
        broken = {**REDIS, "OPTIONS": {"cache": "nowhere"}}
        configure(default=REDIS, fast=cached(REDIS), other=cached(other), broken=broken)
        assert stores.outermost(stores["default"]) is stores["fast"]
        assert stores.outermost(stores["broken"]) is stores["broken"]

    def test_over_the_keys_of_another_sentinel(self, configure: Any, settings: Settings) -> None:
        """Two servers with one name at different Sentinels are two servers."""
        one, two = (
            {**settings.CACHES["default"], "OPTIONS": {"SENTINELS": [(host, 26379)]}}
            for host in ("north", "south")
        )
        settings.CACHES = {"default": one, "two": two}
        configured = cached({**REDIS, "OPTIONS": {"cache": "two"}})
        settings.IDEMPOTENCY = {"STORES": {"default": REDIS, "two": configured}}
        assert stores.outermost(stores["default"]) is stores["default"]


@pytest.mark.django_db(transaction=True)
class TestThroughAnEntryPoint:
    """A DRF view in `atomic`, with a local cache in front of its store."""

    @pytest.fixture(autouse=True)
    def cache(self, configure: Any) -> None:
        configure(default=cached(ORM))

    @pytest.fixture
    def client(self, user: User) -> APIClient:
        client = APIClient()
        client.force_authenticate(user)
        return client

    def charge(self, client: APIClient, amount: int = 2499) -> Any:
        headers = {"Idempotency-Key": "order-42"}
        return client.post("/api/charges/", {"amount": amount, "currency": "inr"}, headers=headers)

    def test_a_replay_costs_no_query(
        self, client: APIClient, django_assert_num_queries: Any
    ) -> None:
        first = self.charge(client)
        with django_assert_num_queries(0):
            again = self.charge(client)
        assert (first.status_code, again.status_code) == (201, 201)
        assert (again.content, again["Idempotent-Replayed"]) == (first.content, "true")
        assert Effect.objects.count() == 1

    def test_another_body(self, client: APIClient) -> None:
        """A cached record is compared before it is served."""
        self.charge(client)
        assert self.charge(client, 1).status_code == 422

    def test_a_release_in_the_admin(self, client: APIClient) -> None:
        """This process forgets the response, too."""
        self.charge(client)
        boss = Client()
        boss.force_login(AdminFactory())
        record = IdempotencyRecord.objects.get()
        boss.post(
            f"/admin/django_idempotency/idempotencyrecord/{record.pk}/release/",
            {"reason": "no charge"},
        )
        again = self.charge(client)
        assert (again.status_code, "Idempotent-Replayed" in again) == (201, False)
        assert Effect.objects.count() == 2

    def test_a_dry_run_of_a_purge(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A dry run counts in the table under the layers."""
        call_command("purge_idempotency", "--dry-run")
        assert capsys.readouterr().out == "Nothing to purge.\n"


def test_protection_is_off_by_default(settings: Settings) -> None:
    """Without keys and hashes the store is the one of STORES, without anything around it."""
    pytest.importorskip("cryptography")
    settings.IDEMPOTENCY = {}
    assert type(stores["default"]) is ORMStore
    settings.IDEMPOTENCY = {"ENCRYPTION_KEYS": ["x" * 43 + "="], "HASH_KEYS": True}
    assert [type(layer).__name__ for layer in layers(stores["default"])] == [
        "HashedStore",
        "SealedStore",
        "ORMStore",
    ]
