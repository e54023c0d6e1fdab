"""Alias → store, like CACHES.

One instance per process: stores are thread safe and keep no state of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string
from django.views.decorators.debug import sensitive_variables

from .. import conf
from ..core.hashing import secret_id
from ..core.policy import Resolved
from ..core.records import Guarantee, Ticket
from ..errors import ConfigurationError
from ..instrumentation.meters import meters
from ..stores.base import BaseStore, layers, records_of
from .app_extensions import app_extensions

#: The number of records in a local cache with `"local_cache": True`.
LOCAL_CACHE = 256
#: What an entry of STORES may have.
_ENTRY = frozenset({"BACKEND", "OPTIONS"})
#: What has that cache: imported by the stores that ask for one.
LAYERED = "django_idempotency.stores.layered"


#: Settings that ask for records to be protected, the innermost first: an optional app does it.
PROTECTING = ("ENCRYPTION_KEYS", "HASH_KEYS")


class Stores:
    """`stores["default"]` is the store of that alias; built on first use."""

    def __init__(self) -> None:
        self._built: dict[str, BaseStore] = {}
        #: Those that are not protected: what other stores nest.
        self._bare: dict[str, BaseStore] = {}

    def __getitem__(self, alias: str) -> BaseStore:
        """Return the store. Raises `ImproperlyConfigured` for an unknown alias or backend."""
        store = self._built.get(alias)
        return (
            self._built.setdefault(alias, protected(self.bare(alias))) if store is None else store
        )

    def bare(self, alias: str, above: tuple[str, ...] = ()) -> BaseStore:
        """Return a store that is not protected, `above` which stores it is nested in."""
        store = self._bare.get(alias)
        chain = (*above, alias)
        if alias in above:
            raise ImproperlyConfigured(
                f'IDEMPOTENCY["STORES"]: {" → ".join(map(repr, chain))} contains itself.'
            )
        if store is None:
            store = self._bare.setdefault(
                alias, build(alias, lambda nested: self.bare(nested, chain))
            )
        return store

    def outermost(self, store: BaseStore) -> BaseStore:
        """Return the store with the most layers over the same records, so that a change reaches
        every layer.

        Stores that cannot be built are ignored; `check` reports them.
        """
        over = [store]
        records = records_of(store)
        for alias in conf.get("STORES"):
            with suppress(ImproperlyConfigured):
                if records_of(self[alias]) == records:
                    over.append(self[alias])
        return max(over, key=lambda other: len(layers(other)))

    def alias_of(self, front: Any) -> str:
        """Return the alias of the store that has this front; of several, one that has the least in
        front of it. "": none has it.
        """
        from ..instrumentation.metered import fronts_of  # see protected()

        places = []
        for alias in conf.get("STORES"):
            with suppress(Exception):  # a store that cannot be built, which `check` reports
                places.append((fronts_of(self[alias]).index(front), alias))
        return min(places)[1] if places else ""

    @contextmanager
    def replaced(self, alias: str, store: BaseStore) -> Iterator[None]:
        """Replace the store of an alias temporarily (tests)."""
        original = self[alias]
        self._built[alias] = store
        conf.recompile()
        try:
            yield
        finally:
            if self._built.get(alias) is store:  # the settings have not changed meanwhile
                self._built[alias] = original
                conf.recompile()

    def forget(self, *, setting: str, **_: Any) -> None:
        """Rebuild the stores after a change of settings (tests)."""
        if setting in (conf.NAME, "DATABASES", "CACHES", "INSTALLED_APPS"):
            self._built.clear()
            self._bare.clear()


def protected(store: BaseStore) -> BaseStore:
    """Return a store that keeps the records of `store` as the settings ask for; the same one if
    they ask for nothing.

    Raises `ImproperlyConfigured` where no installed app can do it: nothing is stored in plain text.
    """
    known = {name: each for app in app_extensions() for name, each in app.protects.items()}
    for name in PROTECTING:
        if conf.get(name) in (conf.DEFAULTS[name], ()):
            continue
        if name not in known:
            raise ImproperlyConfigured(
                f'IDEMPOTENCY["{name}"] is set, and no installed app protects records as it says: '
                f'nothing is stored. Add "{conf.app_with(name)}" to INSTALLED_APPS, or leave '
                f'"{name}" out.'
            )
        store = known[name](store)
    if meters.active:
        from ..instrumentation.metered import watch_fronts  # most projects have no meters

        watch_fronts(store, stores.alias_of)
    return store


@sensitive_variables("configured", "entry", "options")  # an address may have a password
def build(alias: str, nested: Callable[[str], BaseStore]) -> BaseStore:
    """Build a store from its settings. `nested` returns the stores that its OPTIONS name."""
    configured = conf.get("STORES")
    if alias not in configured:
        known = ", ".join(map(repr, configured)) or "none"
        raise ImproperlyConfigured(
            f'IDEMPOTENCY["STORES"] has no {alias!r}. It has {known}. Type one of these, or add it.'
        )
    entry = configured[alias]
    if not isinstance(entry, dict) or not entry.keys() <= _ENTRY:
        raise ImproperlyConfigured(
            f'IDEMPOTENCY["STORES"][{alias!r}] must be a dict with "BACKEND" and, if the store '
            'takes any, "OPTIONS", and no other key.'
        )
    try:
        backend = import_string(entry["BACKEND"])
        options = dict(entry.get("OPTIONS", {}))
        size = _local_cache(options.pop("local_cache", False))
        for name in getattr(backend, "nested", ()):
            if isinstance(options.get(name), str):
                options[name] = nested(options[name])
        store = backend(**options)
        if size and isinstance(store, BaseStore):
            store = import_string(f"{LAYERED}.LayeredStore")(
                front=import_string(f"{LAYERED}.caches.LocalCache")(size), authority=store
            )
    except (ImportError, KeyError, TypeError, ValueError) as error:
        raise ImproperlyConfigured(
            f'IDEMPOTENCY["STORES"][{alias!r}] cannot be built: {error!r}'
        ) from error
    if not isinstance(store, BaseStore):
        raise ImproperlyConfigured(
            f'IDEMPOTENCY["STORES"][{alias!r}]: {backend!r} is not a subclass of BaseStore.'
        )
    store.configure(claim_lease=conf.claim_lease)
    return store


def _local_cache(value: Any) -> int:
    """Return the number of records in a local cache; 0: there is none."""
    if value is True:
        return LOCAL_CACHE
    if not isinstance(value, int) or value < 0:
        raise ValueError(
            f'"local_cache" is True, False or how many records, such as {LOCAL_CACHE}; not '
            f"{value!r}."
        )
    return int(value)


def store_of(policy: Resolved) -> BaseStore:
    """Return the store of a resolved policy.

    Raises `ConfigurationError` if it cannot keep the guarantee.
    """
    store = stores[policy.store]
    if policy.guarantee is Guarantee.ATOMIC and not store.supports_atomic:
        raise ConfigurationError(
            f'The store {policy.store!r} cannot keep "atomic": it joins no transaction. '
            "Name an ORM store, or type "
            'guarantee="lease": then what a killed worker has written is not rolled back, '
            "and the retry writes it again."
        )
    if not meters.active:
        return store
    from ..instrumentation.metered import metered  # most projects have no meters

    return metered(policy.store, store)


def body_limit(policy: Resolved, store: BaseStore) -> int:
    """Return the longest body that a record may hold (bytes): the policy's limit, or else the
    store's.
    """
    return store.max_body if policy.max_body is None else policy.max_body


def issuing(policy: Resolved, **given: Any) -> Callable[..., Ticket]:
    """Return what makes the tickets of all calls under a resolved policy: it takes the fields that
    differ, and not `given`.
    """
    return partial(
        Ticket,
        lease=policy.claim_lease,
        ttl=policy.ttl + policy.seen_for,
        seen_for=policy.seen_for,
        longest_run=policy.longest_run or inf,
        guarantee=policy.guarantee,
        secret_id=secret_id(policy.derive_secret or settings.SECRET_KEY),
        **given,
    )


stores = Stores()
setting_changed.connect(stores.forget)
