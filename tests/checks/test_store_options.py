"""What stores are made of: drivers, caches and each other. The checks connect to nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import checks
from django.core.checks import CheckMessage
from pytest_django import Settings

from django_idempotency.checks import stores as ours
from django_idempotency.checks.databases import check_memory
from django_idempotency.checks.servers import check_servers
from django_idempotency.checks.settings import check_settings
from django_idempotency.stores.memory import MemoryStore

from .conftest import hints

STORE = "django_idempotency.stores"
ORM = {"BACKEND": f"{STORE}.orm.ORMStore"}
MEMORY = {"BACKEND": f"{STORE}.memory.MemoryStore"}


def redis(**options: Any) -> dict[str, Any]:
    if "url" not in options:
        options = {"cache": "redis", **options}
    return {"BACKEND": f"{STORE}.redis.RedisStore", "OPTIONS": options}


def dynamodb(**options: Any) -> dict[str, Any]:
    return {"BACKEND": f"{STORE}.dynamodb.DynamoDBStore", "OPTIONS": options}


def layered(front: Any, authority: Any) -> dict[str, Any]:
    return {
        "BACKEND": f"{STORE}.layered.LayeredStore",
        "OPTIONS": {"front": front, "authority": authority},
    }


@pytest.fixture
def found(settings: Settings) -> Any:
    """Return a function that checks STORES."""
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"},
        "sessions": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/1",
        },
        "django": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
        },
        "valkey": {
            "BACKEND": "django_valkey.cache.ValkeyCache",
            "LOCATION": "valkey://127.0.0.1:1/0",
        },
        "valkey-sentinel": {
            "BACKEND": "django_valkey.cache.ValkeyCache",
            "LOCATION": "valkey://mymaster/0",
            "OPTIONS": {
                "CONNECTION_FACTORY": "django_valkey.pool.SentinelConnectionFactory",
                "SENTINELS": [("127.0.0.1", 1)],
            },
        },
        "valkey-cluster": {
            "BACKEND": "django_valkey.cluster_cache.cache.ClusterValkeyCache",
            "LOCATION": "valkey://127.0.0.1:1/0",
        },
        "absent": {"BACKEND": "no.such.Cache"},
        "empty": {"BACKEND": "django_redis.cache.RedisCache"},
        "client": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
            "OPTIONS": {"CLIENT_CLASS": "no.such.Client"},
        },
    }

    def found(**stores: dict[str, Any]) -> list[CheckMessage]:
        settings.IDEMPOTENCY = {"STORES": {"default": ORM, **stores}}
        return check_settings()

    return found


# -------------------------------------------------------------------------------------------- Redis


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"timeout": 1},
        {"prefix": "shop:keys", "min_replicas": 2},
        {"local_cache": 9},
        {"cache": "django"},
        {"url": "redis://127.0.0.1:1/0"},
        {"url": "rediss://app:p%2Fw%40@[::1]:1?db=2&ssl_cert_reqs=none&max_connections=9"},
        {"url": "unix:///run/redis.sock?db=1&password=secret"},
    ],
)
def test_redis_is_silent(found: Any, options: dict[str, Any]) -> None:
    """A usable Redis raises no finding and no error."""
    assert found(redis=redis(**options)) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"cache": "default"}, 'CACHES["default"] is LocMemCache'),
        ({"cache": "absent"}, "InvalidCacheBackendError"),
        ({"cache": "empty"}, "Missing connections string"),
        ({"cache": "client"}, "No module named"),
        ({"url": "redis://127.0.0.1:1/0?colour=blue"}, "colour"),
        ({"url": "redis://127.0.0.1:1/0?db=first"}, "Invalid value for 'db'"),
        ({"url": "redis://127.0.0.1:70000/0"}, "Port out of range"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"local_cache": True}])
def test_what_no_connection_can_be_made_from(
    found: Any, options: dict[str, Any], problem: str, more: dict[str, Any]
) -> None:
    """E018 says what the store would raise."""
    (message,) = found(redis=redis(**options, **more))
    assert '"OPTIONS": {"url": "redis://127.0.0.1:6379/1"}' in hints([message])["E018"]
    assert problem in message.msg


def test_a_password_is_not_shown(found: Any, settings: Settings) -> None:
    """Not the part of it either that could be taken for a port."""
    location = "redis://user:secret#x@127.0.0.1:6379/0"
    cache = {**settings.CACHES["django"], "LOCATION": location}
    settings.CACHES = {**settings.CACHES, "django": cache}
    (message,) = found(redis=redis(cache="django"))
    assert message.id == "django_idempotency.E018"
    assert "secret" not in message.msg


def test_caches_of_django_valkey(found: Any) -> None:
    """One server is silent. E018 for Sentinel and a cluster, which are django-redis's here."""
    pytest.importorskip("django_valkey")
    assert found(redis=redis(cache="valkey")) == []
    for cache in ("valkey-sentinel", "valkey-cluster"):
        (message,) = found(redis=redis(cache=cache))
        assert message.id == "django_idempotency.E018"
        assert "for Sentinel or a cluster take django_redis.cache.RedisCache" in message.msg


@pytest.mark.parametrize(
    "url",
    [
        *(None, "", 5),
        "http://secret@127.0.0.1:1/0",
        "redis://:secret@127.0.0.1:1/first",
        "redis://:sec/ret@127.0.0.1:1/0",
        "redis://:sec#ret@127.0.0.1:1/0",
        "redis://:secret@127.0.0.1:port/0",
        "redis://:secret@one:1,redis://:secret@other:1",
        "unix://",
    ],
)
def test_a_malformed_url(found: Any, url: Any) -> None:
    """E012, which does not show a password."""
    (message,) = found(redis=redis(url=url))
    assert "what that takes: url, cache, prefix" in hints([message])["E012"]
    assert 'such as "redis://:password@127.0.0.1:6379/1"' in message.msg
    assert "ret" not in message.msg


@pytest.mark.parametrize("cache", ["default", "redis"])
def test_a_url_and_a_cache(found: Any, cache: str) -> None:
    """E012: one of them would be ignored."""
    (message,) = found(redis=redis(url="redis://127.0.0.1:1/0", cache=cache))
    assert '"url" and "cache" are both given' in message.msg
    assert "E012" in hints([message])


@pytest.mark.parametrize(
    ("option", "values", "typed"),
    [
        ("timeout", [0, -1, "0.5", None, True, float("nan"), float("inf"), 3600], "such as 0.4"),
        ("min_replicas", [-1, 1.5, "1", None, True], "a number of replicas, 0 or more"),
        ("prefix", ["", None, 5, "a\n", " a", "a "], 'such as "idempotency"'),
        ("cache", ["", None, 5], 'such as "default"'),
        ("prefx", ["a"], "RedisStore.__init__() got an unexpected keyword argument 'prefx'"),
    ],
)
def test_malformed_options(found: Any, option: str, values: list[Any], typed: str) -> None:
    """E012, also for options that a store cannot be built from."""
    for value in values:
        (message,) = found(redis=redis(**{option: value}))
        assert (
            "what that takes: url, cache, prefix, timeout, min_replicas" in hints([message])["E012"]
        )
        assert typed in message.msg


# ------------------------------------------------------------------------------------------ layered


def test_a_broken_store_is_reported_once(found: Any) -> None:
    """The broken store is reported once, under its own alias."""
    (message,) = found(
        fast=layered("redis", "records"), redis=redis(), records={**ORM, "OPTIONS": {"usign": "x"}}
    )
    assert message.id == "django_idempotency.E012"
    assert "['records']" in message.msg


@pytest.mark.parametrize(
    "other",
    [
        layered("front", "records"),
        layered("again", "records"),  # another alias of the same keys
        layered("front", "elsewhere"),
    ],
)
def test_two_stores_behind_one_front(found: Any, other: dict[str, Any]) -> None:
    """E042: a copy does not say which store it belongs to."""
    hint = hints(
        found(
            fast=layered("front", "default"),
            slow=other,
            front=redis(prefix="a"),
            again=redis(prefix="a"),
            records=redis(prefix="records"),
            elsewhere=MEMORY,
        )
    )["E042"]
    assert '"front": "front-slow" in "slow"' in hint
    assert 'copy of \'front\' as "front-slow", with "prefix": "idempotency-slow"' in hint


@pytest.mark.parametrize(
    "other",
    [
        layered("front", "default"),  # the same records
        layered("front", "cached"),  # the same table, under a cache
        layered("second", "records"),
        layered("sessions", "records"),
    ],
)
def test_fronts_that_do_not_mix(found: Any, other: dict[str, Any]) -> None:
    """Copies of the same records are silent, and so are other keys and another server."""
    assert (
        found(
            fast=layered("front", "default"),
            slow=other,
            front=redis(prefix="a"),
            second=redis(prefix="b"),
            sessions=redis(prefix="a", cache="sessions"),
            records=redis(),
            cached={**ORM, "OPTIONS": {"local_cache": True}},
        )
        == []
    )


def test_two_stores_of_the_same_keys_are_the_same_records(found: Any) -> None:
    assert (
        found(
            fast=layered("front", "a"),
            slow=layered("front", "b"),
            front=redis(prefix="f"),
            a=redis(),
            b=redis(),
        )
        == []
    )


@pytest.mark.parametrize(
    ("change", "codes"),
    [({}, []), ({"table": "other"}, ["E042"]), ({"region_name": "eu-west-1"}, ["E042"])],
)
def test_two_stores_of_one_table_are_the_same_records(
    found: Any, change: dict[str, str], codes: list[str]
) -> None:
    pytest.importorskip("boto3")
    options = {"table": "keys", "region_name": "eu-central-1"}
    one, two = (dynamodb(**each) for each in (options, {**options, **change}))
    messages = found(
        fast=layered("front", "a"),
        slow=layered("front", "b"),
        front=redis(prefix="f"),
        a=one,
        b=two,
    )
    assert [message.id.partition(".")[2] for message in messages] == codes


@pytest.mark.parametrize("timeout", [0, "1", 61])
def test_a_timeout_of_dynamodb(found: Any, timeout: Any) -> None:
    """E012, before a request finds out."""
    pytest.importorskip("boto3")
    (message,) = found(records=dynamodb(timeout=timeout))
    assert "what that takes: table" in hints([message])["E012"]
    assert '"timeout" is seconds' in message.msg


# ------------------------------------------------------------------------------------------- memory


def test_records_in_memory(found: Any, settings: Settings) -> None:
    """W003 outside DEBUG, once for each; the other checks still run."""
    found(
        memory=MEMORY,
        cached={**MEMORY, "OPTIONS": {"local_cache": True}},
        fast=layered("redis", "memory"),
        redis=redis(),
    )
    messages = check_memory()
    assert 'SILENCED_SYSTEM_CHECKS = ["django_idempotency.W003"]' in hints(messages)["W003"]
    assert [message.msg.split('"')[3] for message in messages] == ["memory", "cached"]
    assert check_settings() == []
    settings.DEBUG = True
    assert check_memory() == []


def test_no_check_connects(found: Any) -> None:
    """The checks would wait for the servers of these stores, which do not exist."""
    found(fast=layered("redis", "default"), redis=redis(), other=redis(prefix="b"))
    assert [
        each for each in checks.run_checks(tags=["idempotency"]) if not each.is_silenced()
    ] == []


# ------------------------------------------------------------------------- a store of the project's


class OwnStore(MemoryStore):
    def check(
        self, alias: str, *, deploy: bool = False, copies_only: bool = False
    ) -> list[CheckMessage]:
        asked = "server" if deploy else "options"
        wrong = checks.Warning(
            f"the {asked} of {alias}", hint="Type something else.", id="project.W001"
        )
        return [wrong] if asked == alias else []


def test_a_store_checks_itself(found: Any) -> None:
    """A store's own findings are shown: those about its options always, those about its server with
    --deploy.
    """
    own = {"BACKEND": f"{__name__}.OwnStore"}
    assert [message.msg for message in found(options=own)] == ["the options of options"]
    assert found(server=own) == []
    assert "the server of server" in [message.msg for message in check_servers(databases=[])]


def test_a_wrapper_is_asked(found: Any) -> None:
    """A store around another has checks of its own."""
    wrapping = {"BACKEND": "tests.checks.backends.WrappingStore"}
    assert list(hints(found(other={**wrapping, "OPTIONS": {"server": False}}))) == ["backends.W1"]
    assert found(other={**wrapping, "OPTIONS": {"server": True}}) == []
    assert list(hints(check_servers(databases=[]))) == ["backends.W1"]


AROUND = "tests.checks.backends.AroundStore"
FRONTED = "tests.checks.backends.FrontedStore"


def own(backend: str, **options: Any) -> dict[str, Any]:
    return {"BACKEND": backend, "OPTIONS": options}


@pytest.mark.parametrize(
    ("stores", "problems"),
    [
        ({"mine": own(AROUND, inner="defualt")}, ["has no 'defualt'. It has 'default', 'mine'"]),
        ({"mine": own(AROUND, inner="mine")}, ["'mine' → 'mine' contains itself"]),
        (
            {"mine": own(AROUND, inner="yours"), "yours": own(AROUND, inner="mine")},
            ["'mine' → 'yours' → 'mine'", "'yours' → 'mine' → 'yours'"],
        ),
        # Once, although two stores need it.
        (
            {"deep": own(AROUND, inner="mine"), "mine": own(AROUND, inner="defualt")},
            ["has no 'defualt'"],
        ),
    ],
)
def test_a_wrong_alias(found: Any, stores: dict[str, Any], problems: list[str]) -> None:
    """E012 says what building the store says."""
    messages = found(**stores)
    assert {message.id for message in messages} == {"django_idempotency.E012"}
    assert [
        problem in message.msg for problem, message in zip(problems, messages, strict=True)
    ] == [True] * len(problems)


@pytest.mark.parametrize("inner", ["default", "around"])
def test_a_store_of_ones_own_that_cannot_be_built(found: Any, inner: str) -> None:
    """E012, once, where the stores that it names can be built."""
    (message,) = found(
        mine=own(AROUND, inner=inner, strict=True), around=own(AROUND, inner="default")
    )
    assert (message.id, "too strict" in message.msg) == ("django_idempotency.E012", True)
    (message,) = found(mine=own(AROUND, inner="broken"), broken={**ORM, "OPTIONS": {"usign": "x"}})
    assert (message.id, "['broken']" in message.msg) == ("django_idempotency.E012", True)


@pytest.mark.parametrize(
    ("inner", "codes"),
    [("default", []), ("records", ["E042"]), ("elsewhere", ["E042"]), ("around", [])],
)
@pytest.mark.parametrize(
    "first", [own(FRONTED, front="front", inner="default"), layered("front", "default")]
)
def test_stores_of_ones_own_behind_one_front(
    found: Any, first: Any, inner: str, codes: list[str]
) -> None:
    """E042, whichever stores have the front."""
    others = {
        "records": redis(prefix="r"),
        "elsewhere": MEMORY,
        "around": own(AROUND, inner="default"),
    }
    found_here = hints(
        found(fast=first, slow=own(FRONTED, front="front", inner=inner), front=redis(), **others)
    )
    assert list(found_here) == codes
    assert not codes or '"front": "front-slow" in "slow"' in found_here["E042"]


def test_no_front_is_looked_for_without_layered_stores(
    found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of layered stores can be deleted."""
    monkeypatch.setattr(ours, "find_spec", lambda module: None)
    stores = {name: own(FRONTED, front="front", inner=name[-1]) for name in ("of_a", "of_b")}
    assert found(**stores, front=redis(), a=ORM, b=redis(prefix="b")) == []


def test_the_database_of_any_store_is_known(found: Any) -> None:
    """Also that of a store that we did not write."""
    assert list(hints(found(other={"BACKEND": "tests.checks.backends.StrayStore"}))) == ["E014"]


def test_durable_claims_is_a_switch(found: Any) -> None:
    """E012 for anything else."""
    codes = [
        list(hints(found(other={**ORM, "OPTIONS": {"durable_claims": each}})))
        for each in ("no", False, True)
    ]
    assert codes == [["E012"], [], []]
