"""What a seal is made of."""

from __future__ import annotations

import hmac

import pytest
from pytest_django import Settings

from django_idempotency.stores import sealing


@pytest.mark.parametrize("secret", ["a secret", b"bytes", "ß" * 200])
@pytest.mark.parametrize("message", [b"", b"short", b"long" * 1000])
def test_a_seal_is_an_hmac(secret: str | bytes, message: bytes, settings: Settings) -> None:
    """HMAC-SHA256, as the standard library has it, also the second time."""
    settings.SECRET_KEY = secret
    expected = hmac.digest(sealing._key(secret), message, "sha256")
    assert sealing.seal(message) == sealing.seal(message) == expected
    assert sealing.holds(message, expected)
    assert not sealing.holds(message + b"!", expected)
