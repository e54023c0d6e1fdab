"""The project's keys: what seals stored records and waiting messages."""

from __future__ import annotations

from functools import lru_cache

from django.core.exceptions import ImproperlyConfigured

from .. import conf
from ..core.records import UnprintedText
from ..stores.base import BaseStore
from ..stores.hashed import HashedStore
from ..stores.sealed import Keyring, SealedStore, key_problem


def keyring() -> Keyring | None:
    """Return the keys of ENCRYPTION_KEYS; `None`: it is empty. Raises `ImproperlyConfigured` for what is no key."""
    keys = conf.get("ENCRYPTION_KEYS")
    if not keys:
        return None
    if (problem := key_problem(keys)) is not None:
        del keys  # error reports print the variables of this frame
        raise ImproperlyConfigured(f'{conf.NAME}["ENCRYPTION_KEYS"]: {problem}.')
    return _keyring(tuple(key and UnprintedText(key) for key in keys))


@lru_cache(maxsize=4)
def _keyring(keys: tuple[str | None, ...]) -> Keyring:
    return Keyring(keys)


def protected(store: BaseStore) -> BaseStore:
    """Return a store that keeps the records of `store` as the settings ask for; the same one if they ask for nothing."""
    ring = keyring()
    if ring is not None:
        store = SealedStore(store, ring)
    return HashedStore(store, conf.derive_secret) if conf.get("HASH_KEYS") else store
