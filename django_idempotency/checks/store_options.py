"""Checks of what a store needs: drivers, and other stores. Nothing here connects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from itertools import combinations
from typing import Any

from django.core.checks import CheckMessage

from .. import conf
from ..runtime.registry import records_of
from ..stores.base import BaseStore
from ..stores.wrapper import innermost
from .catalogue import closest, finding, shown

Built = Callable[[str], BaseStore | None]


def missing_driver(alias: str, backend: type[BaseStore], options: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """Find a store whose driver is not installed."""
    driver, extra = backend.driver or ("", "")
    if driver and not options.get("client") and find_spec(driver) is None:
        yield finding("E040", alias=alias, backend=backend.__name__, driver=driver, extra=extra)


# ------------------------------------------------------------------------------------------------------ nested stores


def check_nested(alias: str, backend: type[BaseStore], options: Mapping[str, Any], built: Built) -> list[CheckMessage]:
    """Find the aliases that a store cannot wrap."""
    found = []
    for name in backend.nested:
        value = options.get(name)
        if isinstance(value, str) and (problem := _nested_problem(alias, backend, name, value, built)) is not None:
            taken = {options.get(other) for other in backend.nested if other != name}
            usable = [
                other
                for other in conf.get("STORES")
                if other not in taken
                and _sound(built(other))
                and _nested_problem(alias, backend, name, other, built) is None
            ]
            facts = {"close": closest(value, usable), "added": ""} if usable else _addition(name)
            found.append(finding("E041", alias=alias, name=name, value=shown(value), problem=problem, **facts))
    return found


def _sound(store: BaseStore | None) -> bool:
    """Is a store worth suggesting?"""
    return store is not None and not [*innermost(store).check("")]


def _addition(name: str) -> dict[str, str]:
    kind, option = ("redis.RedisStore", "cache") if name == "front" else ("orm.ORMStore", "using")
    entry = f'{{"BACKEND": "django_idempotency.stores.{kind}", "OPTIONS": {{"{option}": "default"}}}}'
    close = "redis" if name == "front" else "records"
    return {"close": close, "added": f', and add "{close}": {entry} to "STORES"'}


def _nested_problem(alias: str, backend: type[BaseStore], name: str, value: str, built: Built) -> str | None:
    """Return why an alias cannot be used there, or `None`. Another check reports one that cannot be built."""
    if value not in conf.get("STORES"):
        return '"STORES" has no such alias'
    if alias in _reached(value):
        return f'"{alias}" would contain itself'
    store = built(value)
    return None if store is None else backend.nested_error(name, store)


def _reached(alias: str) -> set[str]:
    """Return the aliases that a store consists of according to OPTIONS, including its own."""
    pending, reached = [alias], set[str]()
    while pending:
        if (name := pending.pop()) in reached:
            continue
        reached.add(name)
        pending += nested_in(name).values()
    return reached


def nested_in(alias: str) -> dict[str, str]:
    """Return the stores that a store's options name, by option."""
    from django.utils.module_loading import import_string

    entry = conf.get("STORES").get(alias)
    try:
        names = import_string(entry["BACKEND"]).nested
        options = entry.get("OPTIONS", {})
        return {name: options[name] for name in names if isinstance(options.get(name), str)}
    except Exception:  # noqa: BLE001 - another check reports it
        return {}


# ------------------------------------------------------------------------------------------------------ shared fronts


def check_shared_fronts(built: Built) -> Iterator[CheckMessage]:
    """Find two stores of different records behind one front: a copy does not name its store."""
    fronted = [
        (alias, name, store)
        for alias in conf.get("STORES")
        if (name := nested_in(alias).get("front")) is not None and (store := built(alias)) is not None
    ]
    for (alias, front, store), (other, shared, another) in combinations(fronted, 2):
        one, two = built(front), built(shared)
        if one is None or two is None or records_of(one) != records_of(two) or records_of(store) == records_of(another):
            continue
        cache = getattr(one, "cache", "default")
        yield finding("E042", alias=alias, other=other, front=shown(front), cache=cache)
