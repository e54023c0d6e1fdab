"""Checks that every store can be built, on a supported database, from a driver and other stores. Nothing here connects."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import combinations
from typing import Any

from django.core.checks import CheckMessage
from django.utils.module_loading import import_string

from .. import conf
from ..runtime.registry import records_of, stores
from ..stores.base import BaseStore, innermost, layers
from ..stores.check_messages import Finding, closest, one_line, shown, type_named


class E010(Finding):
    """IDEMPOTENCY["STORES"] is malformed: %(problem)s.

    Type "STORES": {"default": {"BACKEND": "django_idempotency.stores.orm.ORMStore", "OPTIONS": {"using":
    "default"}}}.
    """


class E011(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] has no usable BACKEND: %(error)s.

    Type "BACKEND": "django_idempotency.stores.orm.ORMStore", or the dotted path of another BaseStore.
    """


class E012(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] cannot be built: %(error)s.

    Type in "OPTIONS" what %(backend)s takes: %(takes)s.
    """


class E040(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] is a %(backend)s, and its driver %(driver)s is not installed.

    Type python -m pip install "django-idempotency[%(extra)s]".
    """


class E041(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] has %(value)s as its "%(name)s", which is not possible: %(problem)s.

    Type "%(name)s": "%(close)s"%(added)s.
    """


class E042(Finding):
    """IDEMPOTENCY["STORES"]: "%(alias)s" and "%(other)s" keep different records behind one front, %(front)s, so copies
    of one's records would be replayed for the other.

    Type "front": "front-%(other)s" in "%(other)s", and add "front-%(other)s": {"BACKEND":
    "django_idempotency.stores.redis.RedisStore", "OPTIONS": {"cache": "%(cache)s", "prefix":
    "idempotency-%(other)s"}} to "STORES".
    """


def check_stores() -> Iterator[CheckMessage]:
    """Check STORES."""
    configured = conf.get("STORES")
    if not isinstance(configured, dict):
        yield E010(problem=f"it is {type_named(configured)}")
        return
    found: list[CheckMessage] = []
    for alias, entry in configured.items():
        problem = _malformed(alias, entry)
        found += _store(alias, entry) if problem is None else [E010(problem=problem)]
    yield from found or _shared_fronts()


def built(alias: str) -> BaseStore | None:
    """Return a store, or `None` when it cannot be built, which another check reports."""
    try:
        return stores[alias]
    except Exception:  # noqa: BLE001 - a third-party backend
        return None


def nested_in(alias: str) -> dict[str, str]:
    """Return the stores that a store's options name, by option."""
    entry = conf.get("STORES").get(alias)
    try:
        names = import_string(entry["BACKEND"]).nested
        options = entry.get("OPTIONS", {})
        return {name: options[name] for name in names if isinstance(options.get(name), str)}
    except Exception:  # noqa: BLE001 - another check reports it
        return {}


def _malformed(alias: Any, entry: Any) -> str | None:
    if not isinstance(alias, str) or not alias:
        return f"the alias {shown(alias)} is not a name"
    if not isinstance(entry, dict):
        return f'"{alias}" is {type_named(entry)}, not a dict'
    if unknown := [key for key in entry if key not in ("BACKEND", "OPTIONS")]:
        return f'"{alias}" has {shown(unknown[0])}, but only BACKEND and OPTIONS are allowed'
    if not isinstance(entry.get("BACKEND"), str):
        return f'"{alias}" has no BACKEND, the dotted path of a class'
    options = entry.get("OPTIONS", {})
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        return f'the OPTIONS of "{alias}" are not a dict of names and values'
    return None


def _store(alias: str, entry: Mapping[str, Any]) -> Iterator[CheckMessage]:
    try:
        backend = import_string(entry["BACKEND"])
    except Exception as error:  # noqa: BLE001 - importing runs the project's code
        yield E011(alias=alias, error=shown(error))
        return
    if not (inspect.isclass(backend) and issubclass(backend, BaseStore)):
        yield E011(alias=alias, error=f"{entry['BACKEND']} is not a subclass of BaseStore")
        return
    options = entry.get("OPTIONS", {})
    if wrong := [*_missing_driver(alias, backend, options), *_nested(alias, backend, options)]:
        yield from wrong
        return
    try:
        store = stores[alias]
    except Exception as error:  # noqa: BLE001 - the same
        if not any(built(name) is None for name in nested_in(alias).values()):  # reported under its own alias
            takes = ", ".join(inspect.signature(backend).parameters) or "nothing"
            cause = error.__cause__ or error
            yield E012(alias=alias, error=one_line(cause), backend=backend.__name__, takes=takes)
        return
    # Nested stores are checked under their own aliases.
    for layer in [store] if backend.nested else layers(store):
        yield from layer.check(alias)


def _missing_driver(alias: str, backend: type[BaseStore], options: Mapping[str, Any]) -> Iterator[CheckMessage]:
    driver, extra = backend.driver or ("", "")
    if driver and not options.get("client") and find_spec(driver) is None:
        yield E040(alias=alias, backend=backend.__name__, driver=driver, extra=extra)


# ------------------------------------------------------------------------------------------------------ nested stores


def _nested(alias: str, backend: type[BaseStore], options: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """Find the aliases that a store cannot wrap."""
    for name in backend.nested:
        value = options.get(name)
        if isinstance(value, str) and (problem := _nested_problem(alias, backend, name, value)) is not None:
            taken = {options.get(other) for other in backend.nested if other != name}
            usable = [
                other
                for other in conf.get("STORES")
                if other not in taken and _sound(built(other)) and _nested_problem(alias, backend, name, other) is None
            ]
            facts = {"close": closest(value, usable), "added": ""} if usable else _addition(name)
            yield E041(alias=alias, name=name, value=shown(value), problem=problem, **facts)


def _sound(store: BaseStore | None) -> bool:
    """Is a store worth suggesting?"""
    return store is not None and not [*innermost(store).check("")]


def _addition(name: str) -> dict[str, str]:
    kind, option = ("redis.RedisStore", "cache") if name == "front" else ("orm.ORMStore", "using")
    entry = f'{{"BACKEND": "django_idempotency.stores.{kind}", "OPTIONS": {{"{option}": "default"}}}}'
    close = "redis" if name == "front" else "records"
    return {"close": close, "added": f', and add "{close}": {entry} to "STORES"'}


def _nested_problem(alias: str, backend: type[BaseStore], name: str, value: str) -> str | None:
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
        if (name := pending.pop()) not in reached:
            reached.add(name)
            pending += nested_in(name).values()
    return reached


def _shared_fronts() -> Iterator[CheckMessage]:
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
        yield E042(alias=alias, other=other, front=shown(front), cache=getattr(one, "cache", "default"))
