"""Alias → store, like CACHES. One store serves a process: stores are thread safe and keep no state of a call."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from . import conf
from .stores.base import BaseStore


class Stores:
    """`stores["default"]` is the store of that alias; built at first use."""

    def __init__(self) -> None:
        self._built: dict[str, BaseStore] = {}

    def __getitem__(self, alias: str) -> BaseStore:
        """Return the store. Raises `ImproperlyConfigured` for an alias or a backend that is not there."""
        store = self._built.get(alias)
        if store is None:
            store = self._built.setdefault(alias, build(alias))
        return store

    def forget(self, *, setting: str, **_: Any) -> None:
        """Build anew after a change of settings (tests)."""
        if setting in (conf.NAME, "DATABASES"):
            self._built.clear()


def build(alias: str) -> BaseStore:
    """Make a store from its settings."""
    configured = conf.get("STORES")
    if alias not in configured:
        known = ", ".join(map(repr, configured))
        raise ImproperlyConfigured(f'IDEMPOTENCY["STORES"] has no {alias!r}. It has {known}.')
    try:
        backend = import_string(configured[alias]["BACKEND"])
        store = backend(**configured[alias].get("OPTIONS", {}))
    except (ImportError, KeyError, TypeError) as error:
        raise ImproperlyConfigured(f'IDEMPOTENCY["STORES"][{alias!r}] cannot be built: {error!r}') from error
    if not isinstance(store, BaseStore):
        raise ImproperlyConfigured(f'IDEMPOTENCY["STORES"][{alias!r}]: {backend!r} is no subclass of BaseStore.')
    return store


stores = Stores()
setting_changed.connect(stores.forget)
