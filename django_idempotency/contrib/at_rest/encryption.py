"""The project's keys: what seals stored records and waiting messages."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from django.core.exceptions import ImproperlyConfigured

from ...api import AppExtension, BaseStore, setting
from ...conf import derive_secret
from ...core.records import UnprintedText
from .hashed import HashedStore
from .sealed import CannotOpen, Keyring, SealedStore, key_problem

_TYPE = (
    'Type "ENCRYPTION_KEYS": [os.environ["IDEMPOTENCY_KEY"]], 32 bytes in base64, which this '
    'prints: python -c "import base64, secrets; '
    'print(base64.b64encode(secrets.token_bytes(32)).decode())"'
)


def keyring() -> Keyring | None:
    """Return the keys of ENCRYPTION_KEYS; `None`: it is empty.

    Raises `ImproperlyConfigured` for what is not a key.
    """
    keys = setting("ENCRYPTION_KEYS")
    if keys in ([], ()):
        return None
    problem = key_problem(keys)
    if problem is not None:
        del keys  # error reports print the variables of this frame
        raise ImproperlyConfigured(f'IDEMPOTENCY["ENCRYPTION_KEYS"]: {problem}. {_TYPE}')
    return _keyring(tuple(key and UnprintedText(key) for key in keys))


@lru_cache(maxsize=4)
def _keyring(keys: tuple[str | None, ...]) -> Keyring:
    return Keyring(keys)


def sealing() -> Keyring | None:
    """Return the keys if one of them seals; `None`: what is written now is not sealed."""
    ring = keyring()
    return ring if ring is not None and ring.seals else None


def opened(value: bytes, *place: bytes) -> bytes:
    """Return what a key has sealed for a place. Raises `CannotOpen`."""
    ring = keyring()
    if ring is None:
        raise CannotOpen("ENCRYPTION_KEYS is empty")
    return ring.open(value, *place)


def sealed(store: BaseStore) -> BaseStore:
    """Return a store that seals the records of `store`."""
    ring = keyring()
    return store if ring is None else SealedStore(store, ring)


def hashed(store: BaseStore) -> BaseStore:
    """Return a store that keeps scopes and keys as hashes in `store`."""
    return HashedStore(store, derive_secret)


class AtRest(AppExtension):
    """Protects the records of all stores while a setting asks for it."""

    protects: ClassVar = {"ENCRYPTION_KEYS": sealed, "HASH_KEYS": hashed}
