"""Keys that seal bytes with AES-256-GCM: what is sealed can be read with its key, and only in its
own place.

    version 1 │ key id 4 │ nonce 12, random │ ciphertext and tag, 16 longer than the plain bytes

The *place* is what the bytes belong to, such as a record and one of its fields. It is the
associated data, so it is not stored: bytes that are moved to another place do not open there.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from ....core.hashing import framed
from ....errors import INSTALL

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: The length of a key (bytes): AES-256.
KEY = 32
VERSION = b"\x01"
_NONCE = 12
_ID = 4
_HEAD = len(VERSION) + _ID
#: By how many bytes sealing makes them longer.
OVERHEAD = _HEAD + _NONCE + 16


class CannotOpen(Exception):
    """These bytes were sealed with a key that is not there, belong to another place, or were
    changed.
    """


class Keyring:
    """Seals with the first key, and opens with each. Thread safe.

    `keys` are 32 bytes each, in base64, in which `key_problem()` finds nothing wrong. If the first
    is `None`, nothing is to be sealed: see `seals`. Raises `ImproperlyConfigured` if `cryptography`
    is not installed.
    """

    def __init__(self, keys: Sequence[str | None]) -> None:
        known = [None if key is None else _decoded(key) for key in keys]
        self._ciphers = {_id(key): _cipher(key) for key in known if key is not None}
        self._first = None if known[0] is None else _id(known[0])

    @property
    def seals(self) -> bool:
        """Is there a key that seals, or are all of them for opening?"""
        return self._first is not None

    def seal(self, plain: bytes, *place: bytes) -> bytes:
        """Seal bytes for a place with the first key."""
        assert self._first is not None, "ask `seals` first"
        head = VERSION + self._first
        nonce = secrets.token_bytes(_NONCE)
        return (
            head + nonce + self._ciphers[self._first].encrypt(nonce, plain, framed((head, *place)))
        )

    def open(self, sealed: bytes, *place: bytes) -> bytes:
        """Return what was sealed for a place. Raises `CannotOpen`."""
        from cryptography.exceptions import InvalidTag  # an extra

        head = sealed[:_HEAD]
        nonce = sealed[_HEAD : _HEAD + _NONCE]
        cipher = self._ciphers.get(head[len(VERSION) :])
        if len(sealed) < OVERHEAD or head[: len(VERSION)] != VERSION or cipher is None:
            raise CannotOpen("no key of ENCRYPTION_KEYS has sealed it")
        try:
            return cipher.decrypt(nonce, sealed[_HEAD + _NONCE :], framed((head, *place)))
        except InvalidTag as error:
            raise CannotOpen("it was changed, or belongs to another record") from error

    def has_sealed(self, stored: bytes) -> bool:
        """Do these bytes begin as what one of these keys has sealed?

        JSON, text and archives do not.
        """
        return stored[: len(VERSION)] == VERSION and stored[len(VERSION) : _HEAD] in self._ciphers

    def is_current(self, sealed: bytes) -> bool:
        """Was it sealed with the key that seals now?"""
        return self._first is not None and sealed[:_HEAD] == VERSION + self._first


def key_problem(keys: Any) -> str | None:
    """Return what is wrong with a list of keys; `None`: nothing."""
    if not isinstance(keys, (list, tuple)):
        return f"it is a {type(keys).__name__}, not a list"
    for position, key in enumerate(keys):
        if key is None:
            if position:
                return "None, which seals nothing, is not the first"
        elif not isinstance(key, str):
            return f"key {position + 1} is a {type(key).__name__}, not text"
        elif (length := _length(key)) is None:
            return f"key {position + 1} is not base64"
        elif length != KEY:
            return f"key {position + 1} has {length} bytes, not {KEY}"
    found = [_decoded(key) for key in keys if key is not None]
    return "the same key is there twice" if len(set(found)) < len(found) else None


def _length(key: str) -> int | None:
    try:
        return len(_decoded(key))
    except ValueError:  # binascii.Error is one
        return None


def _decoded(key: str) -> bytes:
    """Decode base64 in either alphabet, as each tool that makes keys has its own."""
    return base64.b64decode(key.strip().replace("-", "+").replace("_", "/"), validate=True)


def _id(key: bytes) -> bytes:
    return hashlib.sha256(b"django-idempotency key id" + key).digest()[:_ID]


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # an extra
    except ImportError as error:
        raise ImproperlyConfigured(
            "ENCRYPTION_KEYS needs cryptography. Type: " + INSTALL.format("encryption")
        ) from error
    return AESGCM(key)
