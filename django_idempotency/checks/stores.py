"""Checks that every store can be built, on a supported database. Nothing here connects."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from django.core.checks import CheckMessage
from django.utils.module_loading import import_string

from .. import conf
from ..core.records import Guarantee
from ..runtime.registry import stores
from ..stores.base import BaseStore
from ..stores.wrapper import layers
from .catalogue import closest, finding, one_line, shown, type_named
from .store_options import check_nested, check_shared_fronts, missing_driver, nested_in


def check_stores() -> Iterator[CheckMessage]:
    """Check STORES and STORE."""
    configured = conf.get("STORES")
    if not isinstance(configured, dict):
        yield finding("E010", problem=f"it is {type_named(configured)}")
        return
    found = False
    for alias, entry in configured.items():
        problem = _malformed(alias, entry)
        for message in _store(alias, entry) if problem is None else [finding("E010", problem=problem)]:
            found = True
            yield message
    if not found:
        yield from check_shared_fronts(built)
    chosen = conf.get("STORE")
    if not isinstance(chosen, str) or not chosen:
        return  # reported by the check of the field
    if chosen not in configured:
        yield finding("E013", value=shown(chosen), close=closest(chosen, configured))
    elif conf.get("GUARANTEE") == Guarantee.ATOMIC and (store := built(chosen)) and not store.supports_atomic:
        yield finding("E016", alias=chosen)


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
        yield finding("E011", alias=alias, error=shown(error))
        return
    if not (inspect.isclass(backend) and issubclass(backend, BaseStore)):
        yield finding("E011", alias=alias, error=f"{entry['BACKEND']} is not a subclass of BaseStore")
        return
    options = entry.get("OPTIONS", {})
    if wrong := [*missing_driver(alias, backend, options), *check_nested(alias, backend, options, built)]:
        yield from wrong
        return
    try:
        store = stores[alias]
    except Exception as error:  # noqa: BLE001 - the same
        if not any(built(name) is None for name in nested_in(alias).values()):  # reported under its own alias
            takes = ", ".join(inspect.signature(backend).parameters) or "nothing"
            cause = error.__cause__ or error
            yield finding("E012", alias=alias, error=one_line(cause), backend=backend.__name__, takes=takes)
        return
    # Nested stores are checked under their own aliases.
    for layer in [store] if backend.nested else layers(store):
        yield from layer.check(alias)


def built(alias: str) -> BaseStore | None:
    """Return a store, or `None` when it cannot be built, which another check reports."""
    try:
        return stores[alias]
    except Exception:  # noqa: BLE001 - a third-party backend
        return None
