"""Checks that every store can be built, and the checks of its own.

Nothing here connects.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib.util import find_spec

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from .. import conf
from ..runtime.registry import LAYERED, stores
from ..stores.base import BaseStore, layers
from ..stores.check_messages import Finding, one_line, type_named
from ..stores.orm import ORMStore


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


class E098(Finding):
    """No store can be used: %(error)s

    Type what it says: until then nothing runs under a key, and nothing is stored.
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
        try:
            stores.bare(alias)
        except Exception as error:  # noqa: BLE001 - a store of the project's, or of another package
            said = _said(alias, error)
            if said not in failed:
                failed.add(said)
                yield E012(alias=alias, error=said, takes=_taken(alias))
            continue
        try:
            store = stores[alias]
        except ImproperlyConfigured as error:
            yield E098(error=error)
            return  # it is the same of each
        # Nested stores are checked under their own aliases.
        for layer in [store] if nested[alias] else layers(store):
            yield from layer.check(alias)
        # Of any stores with a "front".
        if find_spec(LAYERED) is not None:
            check_front = import_string(f"{LAYERED}.checks.check_front")
            yield from check_front(alias=alias, nested=nested, built=built)


def built(alias: str) -> BaseStore | None:
    """Return a store, or `None` when it cannot be built, which `check_stores()` reports."""
    try:
        return stores[alias]
    except Exception:  # noqa: BLE001 - a store of the project's, or of another package
        return None


def nested_in(alias: str) -> dict[str, str]:
    """Return the stores that a store's options name, by option."""
    try:
        entry = conf.get("STORES")[alias]
        options = entry.get("OPTIONS", {})
        names = import_string(entry["BACKEND"]).nested
        return {name: options[name] for name in names if isinstance(options.get(name), str)}
    except Exception:  # noqa: BLE001 - building the store says what is wrong
        return {}


def _taken(alias: str) -> str:
    """Return the options of a store's class; where that is not known, those of ours."""
    try:
        backend = import_string(conf.get("STORES")[alias]["BACKEND"])
    except Exception:  # noqa: BLE001 - importing runs the project's code
        backend = ORMStore
    return ", ".join(inspect.signature(backend).parameters) or "nothing"


def _said(alias: str, error: Exception) -> str:
    """Say what building a store has raised. The registry's own errors name the alias."""
    if isinstance(error, ImproperlyConfigured):
        return str(error).rstrip(".")
    return f'IDEMPOTENCY["STORES"][{alias!r}] cannot be built: {one_line(error)}'
