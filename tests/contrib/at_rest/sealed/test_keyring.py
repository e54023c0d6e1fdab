"""What a keyring seals can be read with its key, in its place, and nowhere else."""

from __future__ import annotations

import base64
import sys

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_idempotency.contrib.at_rest.encryption import keyring
from django_idempotency.contrib.at_rest.sealed import CannotOpen, Keyring, key_problem
from django_idempotency.contrib.at_rest.sealed.keyring import OVERHEAD

from .keys import FIRST, SECOND

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("plain", [b"", b"\0", b"canary", bytes(range(256)) * 100])
def test_there_and_back(plain: bytes) -> None:
    """The same bytes come back; none of them can be seen, and two seals of them differ."""
    ring = Keyring([FIRST])
    sealed = ring.seal(plain, b"record", b"body")
    assert ring.open(sealed, b"record", b"body") == plain
    assert len(sealed) == len(plain) + OVERHEAD
    assert sealed != ring.seal(plain, b"record", b"body")
    assert b"canary" not in sealed


def test_another_place() -> None:
    """Moved bytes do not open, nor do those whose places only look alike when joined."""
    ring = Keyring([FIRST])
    sealed = ring.seal(b"canary", b"ab", b"c")
    for place in [(b"a", b"bc"), (b"abc",), (b"ab", b"d"), (b"ab", b"c", b"")]:
        with pytest.raises(CannotOpen):
            ring.open(sealed, *place)


def test_changed_bytes() -> None:
    """No bit can be changed, and nothing be cut off or added."""
    ring = Keyring([FIRST])
    sealed = ring.seal(b"canary", b"place")
    changed = [
        sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :] for at in range(len(sealed))
    ]
    for wrong in [
        b"",
        b"\x01",
        *(sealed[:length] for length in range(len(sealed))),
        sealed + b"\0",
        *changed,
    ]:
        with pytest.raises(CannotOpen):
            ring.open(wrong, b"place")


def test_rotation() -> None:
    """The first key seals, and each opens."""
    old, both, new = Keyring([FIRST]), Keyring([SECOND, FIRST]), Keyring([SECOND])
    sealed = old.seal(b"canary", b"place")
    assert both.open(sealed, b"place") == b"canary"
    assert not both.is_current(sealed)
    resealed = both.seal(b"canary", b"place")
    assert both.is_current(resealed)
    assert new.open(resealed, b"place") == b"canary"
    with pytest.raises(CannotOpen):
        new.open(sealed, b"place")


def test_only_open() -> None:
    """A ring that begins with None opens, and says that it does not seal."""
    ring = Keyring([None, FIRST])
    assert not ring.seals
    assert ring.open(Keyring([FIRST]).seal(b"canary"), *()) == b"canary"


def test_either_alphabet() -> None:
    """A key of another tool may be in the URL-safe alphabet: it is the same key."""
    key = bytes([0xFB, 0xEF] * 16)
    plain, safe = base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode()
    assert plain != safe
    assert Keyring([safe]).open(Keyring([plain]).seal(b"canary")) == b"canary"


@pytest.mark.parametrize(
    "keys", [["short"], [FIRST, FIRST], [FIRST, None], [FIRST.encode()], "text"]
)
def test_no_keys(keys: list[str]) -> None:
    """What is no key is refused before anything is sealed with it."""
    assert key_problem(keys) is not None
    with (
        override_settings(IDEMPOTENCY={"ENCRYPTION_KEYS": keys}),
        pytest.raises(ImproperlyConfigured, match="ENCRYPTION_KEYS"),
    ):
        keyring()


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install, and never falls back to plain text."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ImproperlyConfigured, match=r"django-idempotency\[encryption\]"):
        Keyring([FIRST])
