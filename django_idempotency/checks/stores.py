"""Checks that every store can be built, from a driver and other stores, and its own checks.

Nothing here connects.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from .. import conf
from ..runtime.registry import stores
from ..stores.base import BaseStore, layers
from ..stores.check_messages import Finding, one_line, type_named
from ..stores.orm import ORMStore
from . import named


class E010(Finding):
    """IDEMPOTENCY["STORES"] is %(found)s, not a dict.

    Type "STORES": {"default": {"BACKEND": "django_idempotency.stores.orm.ORMStore", "OPTIONS":
    {"using": "default"}}}.
    """


class E012(Finding):
    """%(error)s.

    Type for "%(alias)s" a "BACKEND", such as "django_idempotency.stores.orm.ORMStore", and in
    "OPTIONS" what that takes: %(takes)s.
    """


class E040(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] is a %(backend)s, and its driver %(driver)s is not
    installed.

    Type python -m pip install "django-idempotency[%(extra)s]".
    """


def check_stores() -> Iterator[CheckMessage]:
    """Check STORES: what building a store raises is reported once, by its own alias first."""
    configured = conf.get("STORES")
    if not isinstance(configured, dict):
        yield E010(found=type_named(configured))
        return
    nested = {alias: nested_in(alias) for alias in configured}
    failed: set[str] = set()
    for alias in sorted(configured, key=lambda alias: bool(nested[alias])):
        backend = _backend(alias)
        driver = _missing_driver(alias, backend)
        if backend is not None and driver is not None:
            yield E040(alias=alias, backend=backend.__name__, driver=driver[0], extra=driver[1])
            continue
        try:
            store = stores[alias]
        except Exception as error:  # noqa: BLE001 - a store of the project's, or of another package
            said = _said(alias, error)
            if said not in failed:
                failed.add(said)
                takes = ", ".join(inspect.signature(backend or ORMStore).parameters)
                yield E012(alias=alias, error=said, takes=takes or "nothing")
            continue
        # Nested stores are checked under their own aliases.
        for layer in [store] if nested[alias] else layers(store):
            yield from layer.check(alias)
        # Of any stores with a "front".
        yield from named("django_idempotency.stores.layered.checks.check_front")(
            alias=alias, nested=nested, built=built
        )


def built(alias: str) -> BaseStore | None:
    """Return a store, or `None` when it cannot be built, which `check_stores()` reports."""
    try:
        return stores[alias]
    except Exception:  # noqa: BLE001 - a store of the project's, or of another package
        return None


def nested_in(alias: str) -> dict[str, str]:
    """Return the stores that a store's options name, by option."""
    backend = _backend(alias)
    names = () if backend is None else backend.nested
    options = _options(alias)
    return {name: options[name] for name in names if isinstance(options.get(name), str)}


def _backend(alias: str) -> type[BaseStore] | None:
    """Return the class of a store; `None` where building it says what is wrong."""
    try:
        found = import_string(conf.get("STORES")[alias]["BACKEND"])
    except Exception:  # noqa: BLE001 - importing runs the project's code
        return None
    return found if inspect.isclass(found) and issubclass(found, BaseStore) else None


def _options(alias: str) -> Mapping[str, Any]:
    entry = conf.get("STORES").get(alias)
    options = entry.get("OPTIONS") if isinstance(entry, dict) else None
    return options if isinstance(options, dict) else {}


def _said(alias: str, error: Exception) -> str:
    """Say what building a store has raised. The registry's own errors name the alias."""
    if isinstance(error, ImproperlyConfigured):
        return " ".join(str(error).split()).rstrip(".")
    return f'IDEMPOTENCY["STORES"][{alias!r}] cannot be built: {one_line(error)}'


def _missing_driver(alias: str, backend: type[BaseStore] | None) -> tuple[str, str] | None:
    """Return the driver of a store, and our extra that installs it, if it is not there."""
    driver = None if backend is None or "client" in _options(alias) else backend.driver
    return driver if driver is not None and find_spec(driver[0]) is None else None
