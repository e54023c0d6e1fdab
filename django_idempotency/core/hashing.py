"""Canonical bytes and their SHA-256: the identity of a key, and of a request.

Everything is length-prefixed before it is hashed, so two different lists of parts never give the
same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any
from uuid import UUID

from .records import Ticket

#: JSON longer than this (bytes) is compared by bytes: to read it by value takes 40 times as long as
#: the hash, and up to 55 times its size in memory (measured; a list of decimals is the worst).
MAX_CANONICAL = 64 * 1024
#: The length of the spans that name operations, as a part of `ttl`. See `first_operation()`.
SPAN = 0.9


def framed(parts: Iterable[bytes]) -> bytes:
    """Join parts so that their borders cannot move: each is preceded by its length."""
    return b"".join([b"%d:%b," % (len(part), part) for part in parts])


def record_id(scope: str, key: str) -> UUID:
    """Name the record of a key: SHA-256(scope ‖ 0 ‖ key), cut to the 122 bits of a UUID.

    A key never contains NUL.

    The version bits are set because MariaDB's UUID column refuses 16 bytes that are not a valid
    UUID (seen with 10.11; it refuses some of version 8, the version meant for this). Version 5 is
    for names hashed with SHA.
    """
    return UUID(bytes=hashlib.sha256(f"{scope}\0{key}".encode()).digest()[:16], version=5)


def suspension_token(execution: str, record: UUID, attempt: int) -> UUID:
    """Name the owner of a suspended record: its durable execution derives the same token again, and
    no other does.
    """
    parts = (b"suspension", execution.encode(), record.bytes, b"%d" % attempt)
    return UUID(bytes=hashlib.sha256(framed(parts)).digest()[:16], version=5)


def first_operation(ticket: Ticket) -> UUID:
    """Name the operation of a ticket whose key is new: by the record, and by the span of time in
    which its `now` is.

    If a store loses a claim (a crash, a failover), the next claim names the same operation, so the
    first attempt's external effects are not repeated, unless a span ended in between. A key that is
    used again after its retention names another: stores keep a record for the whole `ttl` of its
    claim (`rules.keep_until`), and a span is a tenth shorter, so that clocks may differ by that
    tenth, or a claim may wait so long.
    """
    span = int(ticket.now.timestamp() // max(ticket.ttl * SPAN, 0.001))
    return UUID(
        bytes=hashlib.sha256(framed((b"operation", ticket.id.bytes, b"%d" % span))).digest()[:16],
        version=5,
    )


def next_operation(operation: UUID) -> UUID:
    """Name the operation that begins when this one has expired: the same for every caller, without
    a write.
    """
    return UUID(
        bytes=hashlib.sha256(framed((b"next life", operation.bytes))).digest()[:16], version=5
    )


def request_digest(*parts: bytes) -> bytes:
    """Hash what makes a request the same request: 32 bytes."""
    return hashlib.sha256(framed((b"v1", *parts))).digest()


def octets(secret: str | bytes) -> bytes:
    """Return a secret as bytes; a setting may be either."""
    return secret.encode() if isinstance(secret, str) else secret


def keyed(secret: str | bytes, parts: Iterable[bytes]) -> hmac.HMAC:
    """Hash parts with a secret, without which nobody can guess the hash."""
    return hmac.new(octets(secret), framed(parts), hashlib.sha256)


def derived_key(
    secret: str | bytes, label: str, *, scope: str, key: str, operation: UUID, request: bytes
) -> str:
    """Derive the downstream key of a label: 64 hex digits that cannot be guessed without the
    secret.

    Every attempt of one operation with the same `request` (its digest) gets the same key. A
    corrected request gets another, and so does a key that is used again after it expired.
    """
    parts = (b"derive", scope.encode(), key.encode(), operation.bytes, request, label.encode())
    return keyed(secret, parts).hexdigest()


#: Begins the reference to an operation.
_REF = "op_"


def operation_ref(secret: str | bytes, record: UUID) -> str:
    """Name a record to people outside: its id, signed, as 43 characters that can be read aloud.

    Nobody can make one without the secret, even who knows a key of another and its scope. The id is
    a hash of both.
    """
    return _REF + base64.b32encode(record.bytes + _signature(secret, record)).decode().lower()


def record_of_ref(secrets: Iterable[str | bytes], ref: str) -> UUID | None:
    """Return the id of the record that a reference names; `None` if none of the secrets has signed
    it.
    """
    try:
        decoded = base64.b32decode(ref.strip().lower().removeprefix(_REF).upper())
        record = UUID(bytes=decoded[:16])
    except ValueError:  # binascii.Error is one
        return None
    signed = any(
        hmac.compare_digest(_signature(secret, record), decoded[16:]) for secret in secrets
    )
    return record if signed else None


def _signature(secret: str | bytes, record: UUID) -> bytes:
    parts = (b"operation ref", record.bytes)
    return keyed(secret, parts).digest()[:9]


@lru_cache(maxsize=8)
def secret_id(secret: str | bytes) -> str:
    """Identify a secret without revealing it: 8 hex digits, kept in the row of attempt 1."""
    return hmac.new(octets(secret), b"django-idempotency secret id", hashlib.sha256).hexdigest()[:8]


def canonical_json(body: bytes, prune: Callable[[Any], None] | None = None) -> bytes | None:
    """Return JSON by value (order and spacing do not matter), or `None` if only its bytes are safe
    to compare.

    `prune` may remove from the value what does not count. Numbers keep their decimal text: as
    floats, distinct amounts would merge. `None` for data that is not JSON in UTF-8, has a duplicate
    name or NaN, is nested too deep or is longer than `MAX_CANONICAL`.
    """
    if len(body) > MAX_CANONICAL:
        return None
    numbers: list[str] = []

    def decimal(number: _Decimal) -> float:
        numbers.append(number.text)
        return _NAN

    try:
        # As text: json.loads() of bytes would guess UTF-16 and 32, drop a byte order mark and let
        # lone surrogates pass.
        value = _read_json(body.decode())
        if prune is not None:
            prune(value)
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=decimal)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        return None
    # A decimal is NaN in the text, which JSON that we accept cannot contain. Its own text follows,
    # in order.
    return framed((text.encode(), ",".join(numbers).encode()))


#: What is nested deeper (levels) is not given to code that recurses, which would fail, or not, by
#: who has called it.
DEEP = 128


def is_deep(value: Any) -> bool:
    """Is JSON nested deeper than `DEEP` levels?"""
    level = [value]
    depth = 0
    while level:
        depth += 1
        if depth > DEEP:
            return True
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = [each for each in inner if isinstance(each, (dict, list))]
    return False


_NAN = float("nan")


class _Decimal:
    """A number's text, as it was sent. No `float` and no `str`, so `json.dumps` asks us about
    it.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _integer(text: str) -> int | _Decimal:
    # "-0" is the only integer that does not keep its text; very long ones are slow to convert
    # (CVE-2020-10735).
    return int(text) if text != "-0" and len(text) < 20 else _Decimal(text)


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("duplicate name")
    return result


_read_json = json.JSONDecoder(
    parse_float=_Decimal, parse_int=_integer, parse_constant=_refuse, object_pairs_hook=_unique
).decode
