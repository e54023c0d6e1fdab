"""Signs values kept where others may write.

A bad signature reads as "no value", so no response can be forged.
"""

from __future__ import annotations

import hmac
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.utils.crypto import salted_hmac

from ...core.records import Record
from ...errors import RecordUnreadable
from . import packing

#: Never changed: what is stored stays valid.
_SALT = b"django_idempotency.stores.signing"


def sign(message: bytes) -> bytes:
    """Sign with SECRET_KEY: HMAC-SHA256, 32 bytes."""
    return _signature(message, settings.SECRET_KEY)


def is_valid(message: bytes, signature: bytes) -> bool:
    """Was this signed with SECRET_KEY, or one of SECRET_KEY_FALLBACKS?"""
    # An empty fallback, such as from an unset variable, is not secret.
    secrets = [settings.SECRET_KEY, *(secret for secret in settings.SECRET_KEY_FALLBACKS if secret)]
    return any(hmac.compare_digest(_signature(message, secret), signature) for secret in secrets)


def sign_record(record: Record) -> bytes:
    """Pack and sign a whole record."""
    return packing.pack(record, sign(packing.signature_input(record.id, packing.pack_body(record))))


def unsign(value: bytes, record_id: UUID, read_at: datetime) -> Record | None:
    """Return the record of a packed value, or `None` if it is not ours, or belongs to another key.

    Raises `RecordUnreadable` if it is ours and cannot be read, such as one of a later version. It
    must not run again.
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
    """Sign with a key of our own, so that no signature that other code makes with SECRET_KEY is
    valid here.
    """
    return salted_hmac(_SALT, message, secret, algorithm="sha256").digest()
