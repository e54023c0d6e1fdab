"""The check of `--deploy`, which asks the servers of the stores what may lose records."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from django.core.checks import CheckMessage

from .. import conf
from ..errors import StoreUnavailable
from ..inspection.failures import reason
from ..stores.base import BaseStore, layers, records_of
from ..stores.check_messages import Finding, shown
from .settings import after_settings
from .stores import built, nested_in
from .urlconf import policies, views


class W060(Finding):
    """The store "%(alias)s" (%(backend)s) is not responding, so its server was not checked:
    %(error)s.

    Start it, or allow this host and its credentials to read the server's settings; then type python
    manage.py check --deploy again.
    """


@after_settings
def check_servers(databases: Collection[str] | None = None, **_: Any) -> Iterator[CheckMessage]:
    """Check that the servers of the stores keep records, and delete them once expired."""
    asked = set()
    # First those that need more of a server.
    for alias in sorted(conf.get("STORES"), key=_holds_copies_only):
        store = built(alias)
        if store is None or (databases is not None and store.using not in (None, *databases)):
            continue
        if nested_in(alias):  # a nested store is checked under its own alias
            yield from _asked(alias, store)
        elif (where := records_of(store)) not in asked:
            asked.add(where)
            for layer in layers(store):
                yield from _asked(alias, layer)


def _asked(alias: str, store: BaseStore) -> list[CheckMessage]:
    try:
        return list(store.check(alias, deploy=True, copies_only=_holds_copies_only(alias)))
    except StoreUnavailable as error:
        said = reason(error).rstrip(".")
    except Exception as error:  # noqa: BLE001 - a driver's error, such as a wrong region or address
        said = shown(error)
    return [W060(alias=alias, backend=type(store).__name__, error=said)]


def _holds_copies_only(alias: str) -> bool:
    """Is a store only used as the front of others?"""
    inside = [nested_in(name) for name in conf.get("STORES")]
    fronts = {names["front"] for names in inside if "front" in names}
    others = {value for names in inside for name, value in names.items() if name != "front"}
    if alias not in fronts or alias in others or alias == conf.get("STORE"):
        return False
    return all(
        conf.field(policy, "store") != alias
        for callback, _ in views()
        for policy in policies(callback)
    )
