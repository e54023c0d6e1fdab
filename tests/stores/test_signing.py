"""What a signature is made of."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from pytest_django import Settings

from django_idempotency.stores import signing


@pytest.mark.parametrize(
    ("secret", "signature"),
    [
        ("a secret", "ae6cd79a1d9e28e48ca6e340bd3d7eb48c56f319abd58500aed497e99597fb97"),
        (b"bytes", "7a32a52c63b8ad95661540d82a47d44193261b7eca82b2f0623ab306c58b539d"),
        ("ß" * 200, "8658b6c42e6c26def1516637fd712529696acfa79837d4c0badd7922cafdb956"),  # longer than a block
    ],
)
def test_a_signature_never_changes(secret: str | bytes, signature: str, settings: Settings) -> None:
    """Records that are stored today are valid under every later version."""
    settings.SECRET_KEY = secret
    assert signing.sign(b"message").hex() == signature
    assert signing.is_valid(b"message", bytes.fromhex(signature))
    assert not signing.is_valid(b"message!", bytes.fromhex(signature))


@pytest.mark.parametrize("message", [b"", b"short", b"long" * 1000])
def test_a_signature_is_an_hmac(message: bytes, settings: Settings) -> None:
    """HMAC-SHA256 under a key that is derived from SECRET_KEY for this purpose alone."""
    settings.SECRET_KEY = "a secret"
    key = hashlib.sha256(b"django_idempotency.stores.signing" + b"a secret").digest()
    assert signing.sign(message) == hmac.digest(key, message, "sha256")
