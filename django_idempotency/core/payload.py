"""A record as one value, for stores that keep bytes under a key. Versioned, no pickle, fixed where a server must look:

    seal 32 │ head: version 1, status 1, owner 16, attempt 4 │ lease until, completed, expires 8 each │ digest 1 + 32
            │ created 8 │ life: length 2, six lengths 2 each, six texts │ outcome, or nothing

Instants are microseconds since 1970 as IEEE doubles, which hold them exactly and which Lua has; 0 is "never". The seal
is whatever the store signs `signed()` with: it covers what a store's server does not write itself, the instants.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from datetime import datetime, timedelta, timezone
from uuid import UUID

from .records import MISSING, Guarantee, Missing, Outcome, Record, Status, Ticket

VERSION = 1
SEAL = 32
#: Bodies longer than this, and within what is inflated, are deflated if that makes them shorter (bytes).
DEFLATE_ABOVE = 1024
#: The longest body that is inflated (bytes).
INFLATE_LIMIT = 64 * 1024 * 1024

_HEAD = struct.Struct(">BB16sI")
_TIMES = struct.Struct(">ddd")
_DIGEST = struct.Struct(">B32s")
_CREATED = struct.Struct(">d")
#: All of these, and the length of what follows.
_FIXED = struct.Struct(">32sBB16sIdddB32sdH")
_TIMES_AT = SEAL + _HEAD.size
_DIGEST_AT = _TIMES_AT + _TIMES.size
_CREATED_AT = _DIGEST_AT + _DIGEST.size
_LENGTHS = struct.Struct(">6H")
_LIFE = struct.Struct(">7H")
_SPANS = struct.Struct(">dd")
_OUTCOME = struct.Struct(">BHII")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
#: Of an outcome: has it a body, and is that deflated?
_BODY, _DEFLATED = 1, 2


class Malformed(ValueError):
    """These bytes are no record of ours."""


def pack_head(status: Status, owner: UUID, attempt: int) -> bytes:
    return _HEAD.pack(VERSION, status, owner.bytes, attempt)


def pack_digest(digest: bytes) -> bytes:
    return _DIGEST.pack(len(digest), digest)


def pack_life(origin: Ticket | Record) -> bytes:
    """Pack what a record keeps from its birth to its expiry."""
    texts = (origin.guarantee.value, origin.secret_id, origin.method, origin.path, origin.scope, origin.key)
    packed = "".join(texts).encode()
    return _LIFE.pack(_LENGTHS.size + len(packed), *map(len, texts)) + packed


def pack_spans(lease: float | None, retention: float | None) -> bytes:
    """Pack two spans (seconds) for a server that tells the time itself: as microseconds, `None` as NaN."""
    return _SPANS.pack(*(math.nan if span is None else round(span * 1_000_000) for span in (lease, retention)))


def clocked(answer: bytes) -> tuple[datetime, bytes]:
    """Return a server's clock and what it sends behind it."""
    (now,) = _CREATED.unpack_from(answer)
    return instant(now), answer[_CREATED.size :]


def pack_outcome(outcome: Outcome | None) -> bytes:
    if outcome is None:
        return b""
    headers = json.dumps(outcome.headers, separators=(",", ":")).encode()
    flags, body = 0, b""
    if not isinstance(outcome.body, Missing):
        flags, body = _BODY, outcome.body
    size = len(body)
    if DEFLATE_ABOVE < size <= INFLATE_LIMIT and len(deflated := zlib.compress(body, 1)) < size:
        flags, body = flags | _DEFLATED, deflated
    return _OUTCOME.pack(flags, outcome.status, len(headers), size) + headers + body


def signed(record_id: UUID, head: bytes, digest: bytes, outcome: bytes) -> bytes:
    """Return what a seal covers: no answer can be moved to another key, owner, attempt or request."""
    return record_id.bytes + head + digest + outcome


def pack(record: Record, seal: bytes) -> bytes:
    """Pack a whole record. `seal` signs `signed(record.id, *parts(record))`."""
    head, digest, outcome = parts(record)
    times = _TIMES.pack(*map(microseconds, (record.lease_until, record.completed_at, record.expires_at)))
    created = _CREATED.pack(microseconds(record.created_at))
    return b"".join((seal, head, times, digest, created, pack_life(record), outcome))


def parts(record: Record) -> tuple[bytes, bytes, bytes]:
    """Return head, digest and outcome of a record, as `signed()` takes them."""
    return (
        pack_head(record.status, record.owner, record.attempt),
        pack_digest(record.digest),
        pack_outcome(record.outcome),
    )


def split(value: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Return seal, head, digest and outcome of a packed record. Raises `Malformed`."""
    if len(value) < _FIXED.size or value[SEAL] != VERSION:
        raise Malformed("not a record of this version")
    outcome_at = _FIXED.size + int.from_bytes(value[_FIXED.size - 2 : _FIXED.size], "big")
    if len(value) < outcome_at:
        raise Malformed("cut short")
    return value[:SEAL], value[SEAL:_TIMES_AT], value[_DIGEST_AT:_CREATED_AT], value[outcome_at:]


def unpack(value: bytes, record_id: UUID, read_at: datetime) -> Record:
    """Return the record of a value whose seal was found good. Raises `Malformed`."""
    try:
        _, _, status, owner, attempt, *times, length, padded, created_at, life = _FIXED.unpack_from(value)
        lease_until, completed_at, expires_at = times
        outcome_at = _FIXED.size + life
        guarantee, secret_id, method, path, scope, key = _texts(value[_FIXED.size : outcome_at])
        return Record(
            id=record_id,
            scope=scope,
            key=key,
            digest=padded[:length],
            status=Status(status),
            owner=UUID(int=int.from_bytes(owner, "big")),
            attempt=attempt,
            guarantee=Guarantee(guarantee),
            lease_until=instant(lease_until),
            created_at=instant(created_at),
            completed_at=instant(completed_at) if completed_at else None,
            expires_at=instant(expires_at),
            read_at=read_at,
            secret_id=secret_id,
            method=method,
            path=path,
            outcome=unpack_outcome(value[outcome_at:]),
        )
    except (struct.error, ValueError, OverflowError, zlib.error) as error:
        raise Malformed(str(error)) from error


def unpack_outcome(packed: bytes) -> Outcome | None:
    """Return what pack_outcome() packed. Raises `Malformed` for a body over INFLATE_LIMIT."""
    if not packed:
        return None
    flags, status, headers_size, size = _OUTCOME.unpack_from(packed)
    body_at = _OUTCOME.size + headers_size
    headers = json.loads(packed[_OUTCOME.size : body_at].decode())
    body: bytes | Missing = MISSING
    if flags & _BODY:
        body = packed[body_at:]
        if flags & _DEFLATED:
            body = inflate(body, size)
        if len(body) != size:
            raise Malformed("the body is cut short")
    return Outcome(status=status, headers=tuple((name, text) for name, text in headers), body=body)


def inflate(deflated: bytes, size: int) -> bytes:
    """Inflate what says that it is `size` bytes long, and not a byte more. Raises `Malformed` over INFLATE_LIMIT."""
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
    return _EPOCH + timedelta(0, 0, int(value))


def _texts(life: bytes) -> list[str]:
    texts, joined, start = [], life[_LENGTHS.size :].decode(), 0
    for size in _LENGTHS.unpack_from(life):
        texts.append(joined[start : start + size])
        start += size
    return texts
