"""Checks of the servers under Redis and DynamoDB stores. Only `check --deploy` queries them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage

from .. import conf
from ..errors import ConfigurationError, StoreUnavailable
from ..inspection.failures import reason
from ..runtime.registry import records_of
from ..stores.dynamodb import DynamoDBStore
from ..stores.dynamodb.table import missing
from ..stores.redis import RedisStore
from ..stores.wrapper import innermost
from .catalogue import finding, shown
from .settings import check_settings
from .store_options import nested_in
from .stores import built
from .urlconf import policies, views

#: What our scripts need: TIME before a write.
REDIS = 5


def check_servers(**_: Any) -> list[CheckMessage]:
    """Check that the servers of Redis and DynamoDB stores keep records, and delete them once expired."""
    if check_settings():
        return []
    found: list[CheckMessage] = []
    asked = set()
    for alias in sorted(conf.get("STORES"), key=_holds_copies_only):  # of one server, the alias that needs more
        store = built(alias)
        if store is None or nested_in(alias):
            continue  # a nested store is checked under its own alias
        if (where := records_of(store)) not in asked:
            asked.add(where)
            found += _asked(alias, innermost(store))
    return found


def _asked(alias: str, store: object) -> list[CheckMessage]:
    try:
        match store:
            case RedisStore():
                return list(_redis(alias, store))
            case DynamoDBStore():
                return list(_dynamodb(alias, store))
    except StoreUnavailable as error:
        return [finding("W060", alias=alias, backend=type(store).__name__, error=reason(error).rstrip("."))]
    except Exception as error:  # noqa: BLE001 - a driver's, of a wrong region or address
        return [finding("W060", alias=alias, backend=type(store).__name__, error=shown(error))]
    return []


def _redis(alias: str, store: RedisStore) -> Iterator[CheckMessage]:
    server = store.about()
    version = str(server.get("redis_version", ""))
    major = version.partition(".")[0]
    if major.isdigit() and int(major) < REDIS:
        yield finding("E051", alias=alias, version=version)
    if _holds_copies_only(alias):
        return  # copies may be evicted at any time
    policy, limit = server.get("maxmemory_policy", "noeviction"), int(server.get("maxmemory", 0))
    if limit and policy != "noeviction":
        yield finding("W061", alias=alias, policy=policy, maxmemory=server.get("maxmemory_human") or f"{limit} bytes")
    if str(server.get("aof_enabled", 1)) == "0":
        yield finding("W062", alias=alias)


def _holds_copies_only(alias: str) -> bool:
    """Is a store only used as the front of others?"""
    inside = [nested_in(name) for name in conf.get("STORES")]
    fronts = {names["front"] for names in inside if "front" in names}
    others = {value for names in inside for name, value in names.items() if name != "front"}
    if alias not in fronts or alias in others or alias == conf.get("STORE"):
        return False
    return all(conf.field(policy, "store") != alias for callback, _ in views() for policy in policies(callback))


def _dynamodb(alias: str, store: DynamoDBStore) -> Iterator[CheckMessage]:
    table = store.schema.table
    try:
        match missing(store):
            case "table":
                yield finding("E052", alias=alias, table=table)
            case "ttl":
                yield finding("W063", alias=alias, table=table)
    except ConfigurationError as error:
        yield finding("E053", alias=alias, error=error)
