"""A record as one value, for stores that keep bytes under a key.

Versioned, no pickle, fixed where a server reads:

    signature 32 │ instants: lease until, completed, expires, created, purge 8 each │ head: version 1, status 1, owner 16, attempt 4
    │ digest 1 + 32 │ life: length 2, operation 16, where five texts start 2 each, six texts │ request id: length 1, text │ outcome, or nothing

Instants are microseconds since 1970 as IEEE doubles, which hold them exactly and which Lua has; 0
is "never". A store's server writes them itself. Everything from the head on is the body. The store
writes it, and signs `signature_input()`.
"""

from __future__ import annotations

import json
import struct
import zlib
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from math import inf
from uuid import UUID

from ...core.at_rest import is_sealed
from ...core.records import (
    GUARANTEES,
    INFLATE_LIMIT,
    MISSING,
    STATUSES,
    Missing,
    Outcome,
    Record,
    Status,
    Ticket,
)

VERSION = 1
SIGNATURE = 32
#: Bodies longer than this (bytes), and up to INFLATE_LIMIT, are deflated if that makes them
#: shorter.
DEFLATE_ABOVE = 1024

#: The fields of fixed length, in order, each with its format (see `struct`). Defined only here:
#: what a server's script needs of it is generated from this table, as `stores.redis.layout` does.
FIELDS = {
    "signature": f"{SIGNATURE}s",
    "lease_until": "d",
    "completed_at": "d",
    "expires_at": "d",
    "created_at": "d",
    "purge_at": "d",
    "version": "B",
    "status": "B",
    "owner": "16s",
    "attempt": "I",
    "digest_length": "B",
    "digest": "32s",
    "life_length": "H",
}
_CLOCK = struct.Struct(">d")
#: The length of a server's clock in its reply (bytes).
CLOCK = _CLOCK.size


def _formats(first: str, last: str) -> struct.Struct:
    """Return the format of the fields from one to another."""
    names = list(FIELDS)
    return struct.Struct(
        ">" + "".join(FIELDS[name] for name in names[names.index(first) : names.index(last) + 1])
    )


_FIXED = _formats("signature", "life_length")
_INSTANTS = _formats("lease_until", "purge_at")
_HEAD = _formats("version", "digest")
_LENGTH = _formats("life_length", "life_length")
#: How a life begins: the operation, and where five texts start.
_LIFE = struct.Struct(">16s5H")
_BODY_AT = SIGNATURE + _INSTANTS.size
_read_json = json.JSONDecoder().raw_decode
_OUTCOME = struct.Struct(">BHII")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
#: Flags of an outcome: it has a body; the body is deflated.
_BODY = 1
_DEFLATED = 2


class Malformed(ValueError):
    """These bytes are not one of our records."""


def pack_head(status: Status, owner: UUID, attempt: int, digest: bytes) -> bytes:
    return _HEAD.pack(VERSION, status, owner.int.to_bytes(16, "big"), attempt, len(digest), digest)


def pack_life(origin: Ticket | Record, operation: UUID) -> bytes:
    """Pack what a record keeps from its birth to its expiry."""
    secret_at = len(origin.guarantee)
    method_at = secret_at + len(origin.secret_id)
    path_at = method_at + len(origin.method)
    scope_at = path_at + len(origin.path)
    key_at = scope_at + len(origin.scope)
    texts = (
        origin.guarantee,
        origin.secret_id,
        origin.method,
        origin.path,
        origin.scope,
        origin.key,
    )
    text = "".join(texts).encode()
    starts = _LIFE.pack(
        operation.int.to_bytes(16, "big"), secret_at, method_at, path_at, scope_at, key_at
    )
    return _LENGTH.pack(_LIFE.size + len(text)) + starts + text


def life(value: bytes) -> bytes:
    """Return the packed life of a packed record."""
    return value[_FIXED.size - _LENGTH.size : _after_life(value)]


def pack_request_id(request_id: str) -> bytes:
    """Pack what each owner brings anew, and so is no part of the life."""
    packed = request_id.encode()
    return bytes((len(packed),)) + packed


def unwritten(
    signature: bytes, body: bytes, *, lease: float | None, retention: float | None
) -> bytes:
    """Return a packed record whose instants a server will write.

    Until then, two of them are what it adds to its clock: the lease and the retention (seconds),
    without an end for one that does not change.
    """
    return signature + _INSTANTS.pack(span(lease), 0, span(retention), 0, 0) + body


def span(seconds: float | None) -> float:
    """Return seconds as a server adds them to its clock, in microseconds: without an end for
    `None`.
    """
    return inf if seconds is None else round(seconds * 1_000_000)


def clock(now: datetime) -> bytes:
    return _CLOCK.pack(microseconds(now))


def clocked(answer: bytes) -> tuple[datetime, bytes]:
    """Split a server's reply into its clock and what follows."""
    (now,) = _CLOCK.unpack_from(answer)
    return instant(now), answer[_CLOCK.size :]


def pack_outcome(outcome: Outcome | None) -> bytes:
    if outcome is None:
        return b""
    headers = json.dumps(outcome.headers, separators=(",", ":")).encode()
    flags = 0
    body = b""
    if not isinstance(outcome.body, Missing):
        flags = _BODY
        body = outcome.body
    size = len(body)
    # Which was deflated before.
    deflates = DEFLATE_ABOVE < size <= INFLATE_LIMIT and not is_sealed(outcome)
    if deflates and len(deflated := zlib.compress(body, 1)) < size:
        flags = flags | _DEFLATED
        body = deflated
    return _OUTCOME.pack(flags, outcome.status, len(headers), size) + headers + body


def signature_input(record_id: UUID, body: bytes) -> bytes:
    """Return what a signature covers: a response cannot move to another key, owner, attempt,
    request or birth.
    """
    return record_id.int.to_bytes(16, "big") + body


def pack(record: Record, signature: bytes) -> bytes:
    """Pack a whole record. `signature` signs `signature_input(record.id, pack_body(record))`."""
    instants = (
        record.lease_until,
        record.completed_at,
        record.expires_at,
        record.created_at,
        record.purge_at,
    )
    return signature + _INSTANTS.pack(*map(microseconds, instants)) + pack_body(record)


def pack_body(record: Record) -> bytes:
    """Pack everything of a record except its instants."""
    head = pack_head(record.status, record.owner, record.attempt, record.digest)
    tail = pack_request_id(record.request_id) + pack_outcome(record.outcome)
    return head + pack_life(record, record.operation) + tail


def split(value: bytes, record_id: UUID) -> tuple[bytes, bytes]:
    """Return the signature of a packed record of any version, and what it must cover.

    Raises `Malformed`.
    """
    if len(value) <= _BODY_AT:
        raise Malformed("cut short")
    return value[:SIGNATURE], signature_input(record_id, value[_BODY_AT:])


def unpack(value: bytes, record_id: UUID, read_at: datetime) -> Record:
    """Return the record of a value whose signature is valid. Raises `Malformed`."""
    if len(value) <= _BODY_AT or value[_BODY_AT] != VERSION:
        raise Malformed("not a record of this version")
    try:
        _, *instants, _, status, owner, attempt, length, padded, size = _FIXED.unpack_from(value)
        lease_until, completed_at, expires_at, created_at, purge_at = instants
        request_at = _FIXED.size + size + 1
        outcome_at = request_at + value[request_at - 1]
        if len(value) < outcome_at:
            raise Malformed("cut short")
        operation, secret_at, method_at, path_at, scope_at, key_at = _LIFE.unpack_from(
            value, _FIXED.size
        )
        text = value[_FIXED.size + _LIFE.size : request_at - 1].decode()
        return Record(
            id=record_id,
            scope=text[scope_at:key_at],
            key=text[key_at:],
            digest=padded[:length],
            status=STATUSES[status],
            owner=UUID(bytes=owner),
            attempt=attempt,
            guarantee=GUARANTEES[text[:secret_at]],
            lease_until=instant(lease_until),
            created_at=instant(created_at),
            completed_at=instant(completed_at) if completed_at else None,
            expires_at=instant(expires_at),
            purge_at=instant(purge_at),
            read_at=read_at,
            operation=UUID(bytes=operation),
            secret_id=text[secret_at:method_at],
            method=text[method_at:path_at],
            path=text[path_at:scope_at],
            request_id=value[request_at:outcome_at].decode(),
            outcome=unpack_outcome(value[outcome_at:]),
        )
    except (
        struct.error,
        LookupError,
        ValueError,
        OverflowError,
        OSError,
        RecursionError,
        zlib.error,
    ) as error:
        raise Malformed(str(error)) from error


def unpack_outcome(packed: bytes) -> Outcome | None:
    """Return what pack_outcome() packed. Raises `Malformed` for a body over INFLATE_LIMIT."""
    if not packed:
        return None
    flags, status, headers_size, size = _OUTCOME.unpack_from(packed)
    body_at = _OUTCOME.size + headers_size
    body: bytes | Missing = MISSING
    if flags & _BODY:
        body = packed[body_at:]
        if flags & _DEFLATED:
            body = inflate(body, size)
        if len(body) != size:
            raise Malformed("the body is cut short")
    return Outcome(status, _headers(packed[_OUTCOME.size : body_at]), body)


#: Many responses have the same few headers. This many stay in memory, since parsing them costs a
#: third of unpack().
@lru_cache(maxsize=64)
def _headers(packed: bytes) -> tuple[tuple[str, str], ...]:
    headers, _ = _read_json(packed.decode())
    return tuple(map(tuple, headers))


def inflate(deflated: bytes, size: int) -> bytes:
    """Inflate data to its declared `size` in bytes, and never more.

    Raises `Malformed` over INFLATE_LIMIT.
    """
    if size > INFLATE_LIMIT:
        raise Malformed(f"a body of {size} bytes is not inflated")
    inflater = zlib.decompressobj()
    body = inflater.decompress(deflated, size) if size else b""
    if len(body) != size or inflater.decompress(inflater.unconsumed_tail, 1):
        raise Malformed("a body inflates to another size than it says")
    return body


def microseconds(value: datetime | None) -> float:
    return 0.0 if value is None else float((value - _EPOCH) // _MICROSECOND)


def instant(value: float) -> datetime:
    """Return the instant, exact to the microsecond (until 2242: then a double of seconds is too
    coarse).
    """
    return datetime.fromtimestamp(value / 1_000_000, timezone.utc)


def _after_life(value: bytes) -> int:
    (size,) = _LENGTH.unpack_from(value, _FIXED.size - _LENGTH.size)
    return _FIXED.size + int(size)
