"""Checks that every store can be built, on a supported database, from a driver and other stores.

Nothing here connects.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from django.core.checks import CheckMessage
from django.utils.module_loading import import_string

from .. import conf
from ..runtime.registry import stores
from ..stores.base import BaseStore, innermost, layers
from ..stores.check_messages import Finding, closest, one_line, shown, type_named
from . import named


class E010(Finding):
    """IDEMPOTENCY["STORES"] is malformed: %(problem)s.

    Type "STORES": {"default": {"BACKEND": "django_idempotency.stores.orm.ORMStore", "OPTIONS":
    {"using": "default"}}}.
    """


class E011(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] has no usable BACKEND: %(error)s.

    Type "BACKEND": "django_idempotency.stores.orm.ORMStore", or the dotted path of another
    BaseStore.
    """


class E012(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] cannot be built: %(error)s.

    Type in "OPTIONS" what %(backend)s takes: %(takes)s.
    """


class E040(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] is a %(backend)s, and its driver %(driver)s is not
    installed.

    Type python -m pip install "django-idempotency[%(extra)s]".
    """


class E041(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] has %(value)s as its "%(name)s", which is not possible:
    %(problem)s.

    Type "%(name)s": "%(close)s"%(added)s.
    """


#: Each alias of STORES → option → the alias that it names.
Nested = Mapping[str, Mapping[str, str]]


def check_stores() -> Iterator[CheckMessage]:
    """Check STORES."""
    configured = conf.get("STORES")
    if not isinstance(configured, dict):
        yield E010(problem=f"it is {type_named(configured)}")
        return
    for alias, entry in configured.items():
        problem = _malformed(alias, entry)
        yield from _store(alias, entry) if problem is None else [E010(problem=problem)]


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
    nested = {name: nested_in(name) for name in conf.get("STORES")}
    if wrong := [*_missing_driver(alias, backend, options), *_nested(alias, backend, nested)]:
        yield from wrong
        return
    try:
        store = stores[alias]
    except Exception as error:  # noqa: BLE001 - the same
        # Else it is reported under its own alias.
        if all(built(name) is not None for name in nested[alias].values()):
            takes = ", ".join(inspect.signature(backend).parameters) or "nothing"
            cause = error.__cause__ or error
            yield E012(alias=alias, error=one_line(cause), backend=backend.__name__, takes=takes)
        return
    # Nested stores are checked under their own aliases.
    for layer in [store] if backend.nested else layers(store):
        yield from layer.check(alias)
    # Of any stores with a "front".
    yield from named("django_idempotency.stores.layered.checks.check_front")(
        alias=alias, nested=nested, built=built
    )


def _missing_driver(
    alias: str, backend: type[BaseStore], options: Mapping[str, Any]
) -> Iterator[CheckMessage]:
    driver, extra = backend.driver or ("", "")
    if driver and not options.get("client") and find_spec(driver) is None:
        yield E040(alias=alias, backend=backend.__name__, driver=driver, extra=extra)


# ------------------------------------------------------------------------------------ nested stores


def _nested(alias: str, backend: type[BaseStore], nested: Nested) -> Iterator[CheckMessage]:
    """Find the aliases that a store cannot be around."""
    for name, value in nested[alias].items():
        problem = _problem(alias, backend, name, value, nested)
        if problem is not None:
            others = [
                other
                for other in nested
                if other not in nested[alias].values() and _is_sound(built(other))
            ]
            usable = [
                other for other in others if _problem(alias, backend, name, other, nested) is None
            ]
            facts = {"close": closest(value, usable), "added": ""} if usable else _addition(name)
            yield E041(alias=alias, name=name, value=shown(value), problem=problem, **facts)


def _problem(
    alias: str, backend: type[BaseStore], name: str, value: str, nested: Nested
) -> str | None:
    """Return why an alias cannot be used there, or `None`.

    Another check reports one that cannot be built.
    """
    if value not in nested:
        return '"STORES" has no such alias'
    if alias in _reached(value, nested):
        return f'"{alias}" would contain itself'
    store = built(value)
    return None if store is None else backend.nested_error(name, store)


def _reached(alias: str, nested: Nested) -> set[str]:
    """Return the aliases that a store consists of, including its own."""
    reached = {alias}
    for _ in nested:  # no store is deeper than all together
        reached |= {inside for each in reached for inside in nested.get(each, {}).values()}
    return reached


def _is_sound(store: BaseStore | None) -> bool:
    """Is a store worth suggesting?"""
    return store is not None and not [*innermost(store).check("")]


def _addition(name: str) -> dict[str, str]:
    close, kind, option = (
        ("redis", "redis.Redis", "cache") if name == "front" else ("records", "orm.ORM", "using")
    )
    entry = (
        f'{{"BACKEND": "django_idempotency.stores.{kind}Store", "OPTIONS": {{"{option}": '
        f'"default"}}}}'
    )
    return {"close": close, "added": f', and add "{close}": {entry} to "STORES"'}
