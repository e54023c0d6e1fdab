"""How signatures are made."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from pytest_django import Settings

from django_idempotency.stores.key_value import signing


@pytest.mark.parametrize(
    ("secret", "signature"),
    [
        ("a secret", "922b7a7334ce4432edc41ce2da4e3f962478e02e2300c4f29363b741e099367e"),
        (b"bytes", "2b9c2fc2c358e96e2c3570424f63c6a705396e017d985c1d485b3b1d49842797"),
        # Longer than a block.
        (
            "ß" * 200,
            "5c498a8f5db0ab4d8bf293609734d4f97bbf92507f6f4ac31b9726b008babbef",
        ),
    ],
)
def test_a_signature_never_changes(secret: str | bytes, signature: str, settings: Settings) -> None:
    """Records stored today are valid in every later version."""
    settings.SECRET_KEY = secret
    assert signing.sign(b"message").hex() == signature
    assert signing.is_valid(b"message", bytes.fromhex(signature))
    assert not signing.is_valid(b"message!", bytes.fromhex(signature))


@pytest.mark.parametrize("message", [b"", b"short", b"long" * 1000])
def test_a_signature_is_an_hmac(message: bytes, settings: Settings) -> None:
    """It is HMAC-SHA256 with a key derived from SECRET_KEY for this purpose alone."""
    settings.SECRET_KEY = "a secret"
    key = hashlib.sha256(b"django_idempotency.stores.signing" + b"a secret").digest()
    assert signing.sign(message) == hmac.digest(key, message, "sha256")
