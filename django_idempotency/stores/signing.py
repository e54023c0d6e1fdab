"""Signs what is kept where others may write. A bad signature reads as "there is nothing", so no answer can be forged."""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime
from uuid import UUID

from django.conf import settings

from ..core.records import Record
from ..errors import RecordUnreadable
from . import packing

_SALT = b"django_idempotency.stores.signing"


def sign(message: bytes) -> bytes:
    """Sign with SECRET_KEY: HMAC-SHA256, 32 bytes."""
    return _signature(message, settings.SECRET_KEY)


def is_valid(message: bytes, signature: bytes) -> bool:
    """Was this signed with SECRET_KEY, or one of SECRET_KEY_FALLBACKS?"""
    if hmac.compare_digest(_signature(message, settings.SECRET_KEY), signature):
        return True
    return any(
        hmac.compare_digest(_signature(message, secret), signature)
        for secret in settings.SECRET_KEY_FALLBACKS
        if secret  # everybody knows an empty one, as of a variable that is not set
    )


def sign_record(record: Record) -> bytes:
    """Pack and sign a whole record."""
    return packing.pack(record, sign(packing.signature_input(record.id, packing.pack_body(record))))


def unsign(value: bytes, record_id: UUID, read_at: datetime) -> Record | None:
    """Return the record of a packed value, or `None` when it is not ours, or not of that key.

    Raises `RecordUnreadable` for what is ours and cannot be read, as of a later version: it must not run again.
    """
    try:
        signature, message = packing.split(value, record_id)
    except packing.Malformed:
        return None
    if not is_valid(message, signature):
        return None
    try:
        return packing.unpack(value, record_id, read_at)
    except packing.Malformed as error:
        raise RecordUnreadable from error


def _signature(message: bytes, secret: str | bytes) -> bytes:
    return hmac.digest(_key(secret), message, "sha256")


def _key(secret: str | bytes) -> bytes:
    """Derive a key of our own: what is signed with SECRET_KEY elsewhere is not a signature of ours."""
    return hashlib.sha256(_SALT + (secret.encode() if isinstance(secret, str) else secret)).digest()
