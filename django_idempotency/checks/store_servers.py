"""Checks of the servers under the stores, such as Redis and DynamoDB. Only `check --deploy` queries them."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage

from .. import conf
from ..errors import StoreUnavailable
from ..inspection.failures import reason
from ..runtime.registry import records_of
from ..stores.base import BaseStore
from ..stores.wrapper import layers
from .catalogue import finding, shown
from .settings import check_settings
from .store_options import nested_in
from .stores import built
from .urlconf import policies, views


def check_servers(**_: Any) -> list[CheckMessage]:
    """Check that the servers of the stores keep records, and delete them once expired."""
    if check_settings():
        return []
    found: list[CheckMessage] = []
    asked = set()
    for alias in sorted(conf.get("STORES"), key=_holds_copies_only):  # first those that need more of a server
        store = built(alias)
        if store is None:
            continue
        if nested_in(alias):  # a nested store is checked under its own alias
            found += _asked(alias, store)
        elif (where := records_of(store)) not in asked:
            asked.add(where)
            for layer in layers(store):
                found += _asked(alias, layer)
    return found


def _asked(alias: str, store: BaseStore) -> list[CheckMessage]:
    try:
        return list(store.check(alias, deploy=True, copies_only=_holds_copies_only(alias)))
    except StoreUnavailable as error:
        return [finding("W060", alias=alias, backend=type(store).__name__, error=reason(error).rstrip("."))]
    except Exception as error:  # noqa: BLE001 - a driver's error, such as a wrong region or address
        return [finding("W060", alias=alias, backend=type(store).__name__, error=shown(error))]


def _holds_copies_only(alias: str) -> bool:
    """Is a store only used as the front of others?"""
    inside = [nested_in(name) for name in conf.get("STORES")]
    fronts = {names["front"] for names in inside if "front" in names}
    others = {value for names in inside for name, value in names.items() if name != "front"}
    if alias not in fronts or alias in others or alias == conf.get("STORE"):
        return False
    return all(conf.field(policy, "store") != alias for callback, _ in views() for policy in policies(callback))
