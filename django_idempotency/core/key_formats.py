"""What a key may look like, and the one spelling under which it is kept.

A UUID has several spellings. RFC 9562 (section 4) writes it as 32 hexadecimal digits with hyphens,
in either case, and names the URN and the braces that some platforms add; Python and .NET also write
it without hyphens. A client, or what stores its key between two tries, may change from one to
another: all of them are one key.

A UUIDv7 begins with the time at which it was made, so the age of a key is known although its record
is gone:

    ahead |  made        the retention (ttl) of keys that are made now        | expired
    ------+----x---------------------------------------------------------------+--------> now
          '-- AHEAD --'  accepted: its record is kept for as long, and longer

A key that the server has issued has its time, too: the signed time of its issue
(`http.issued_keys`). It is judged by the same line, so a key has one lifetime, whether a
client made it or the server did, and a retry within it is a replay.

Whatever is accepted either finds its record or was never seen. That is why a record is kept longer
than its key is accepted (`kept_for()`): a key may be dated AHEAD at its claim, and the hosts that
judge it differ from the store's clock.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any
from uuid import UUID

#: Any key that the header may carry, as it is.
ANY = "any"
UUID7 = "uuid7"
#: A key that the server has issued, signed, to the client that sends it.
ISSUED = "issued"
#: Format → the version of its UUIDs; `None`: any.
VERSIONS: dict[str, int | None] = {"uuid": None, "uuid4": 4, UUID7: 7}
NAMES = (ANY, *VERSIONS, ISSUED)
#: The formats whose keys say when they were made.
DATED = frozenset({UUID7, ISSUED})

#: Seconds by which a UUIDv7 may be dated ahead: the clocks of clients differ.
AHEAD = 300.0

_HYPHENATED = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SPELLINGS = re.compile(
    rf"(?:urn:uuid:)?({_HYPHENATED})|\{{({_HYPHENATED})\}}|([0-9a-f]{{32}})",
    re.IGNORECASE | re.ASCII,
)
#: All zeros and all ones (RFC 9562 sections 5.9 and 5.10): what a client sends that has made no
#: key.
_NO_KEYS = (UUID(int=0), UUID(int=2**128 - 1))

#: A key that the server has issued: 16 random bytes, the milliseconds of its issue, what binds it
#: to its client, and the signature of the three. All but the time are base64 as URLs have it,
#: without padding.
ISSUED_PATTERN = "[A-Za-z0-9_-]{22}\\.[0-9a-f]{11}\\.[A-Za-z0-9_-]{43}:[A-Za-z0-9_-]{43}"
_ISSUED = re.compile(ISSUED_PATTERN, re.ASCII)
#: One that no server has signed.
ISSUED_SAMPLE = f"{'A' * 22}.019a9d3c7c0.{'A' * 43}:{'A' * 43}"

#: A UUID, but for its version and its variant.
_SAMPLE = "919108f7-52d1-{version}320-{variant}bac-f847db4148a8"

#: A name, not an expression.
_WORD = re.compile(r"[\w-]*", re.ASCII)


class KeyFault(Enum):
    """Why a key is not accepted."""

    MALFORMED = "malformed"
    EXPIRED = "expired"
    AHEAD = "ahead"


def is_format(value: Any) -> bool:
    """Is it the name of a format, or a regular expression?

    A single word is a name: a misspelt one would match itself.
    """
    if isinstance(value, re.Pattern):
        return isinstance(value.pattern, str)
    if not isinstance(value, str) or (_WORD.fullmatch(value) and value not in NAMES):
        return False
    try:
        re.compile(value)
    except re.error:
        return False
    return True


def spelled(
    key: str, key_format: str | re.Pattern[str], *, now: datetime, ttl: float
) -> str | KeyFault:
    """Return the key in the spelling under which it is kept, or why it is not accepted.

    `ttl` is the policy's, in seconds. `now` is aware. An issued key must have been found to be
    ours: signatures are not checked here.
    """
    if key_format == ANY:
        return key
    if key_format == ISSUED:
        issued = issued_at(key)
        return (
            KeyFault.MALFORMED if issued is None else _fault_of_age(issued / 1000, now, ttl) or key
        )
    if key_format not in VERSIONS:
        return key if re.fullmatch(key_format, key) else KeyFault.MALFORMED
    found = _SPELLINGS.fullmatch(key)
    if found is None or (uuid := UUID(found[1] or found[2] or found[3])) in _NO_KEYS:
        return KeyFault.MALFORMED
    version = VERSIONS[str(key_format)]
    if version is not None and uuid.version != version:
        return KeyFault.MALFORMED
    made = (uuid.int >> 80) / 1000  # its first 48 bits are milliseconds (RFC 9562 section 5.7)
    return (_fault_of_age(made, now, ttl) if version == 7 else None) or str(uuid)


def issued_at(key: str) -> int | None:
    """Return when a key says that it was issued, in milliseconds since 1970; `None` for what has
    not this format.
    """
    return int(key.split(".")[1], 16) if _ISSUED.fullmatch(key) else None


@lru_cache(maxsize=64)  # asked with each request
def is_possible(key_format: str | re.Pattern[str], pattern: str | None, max_length: int) -> bool:
    """Can a key have this format and what a profile asks for?

    Known of all but expressions, of which it is supposed.
    """
    if key_format == ISSUED:
        return (
            len(ISSUED_SAMPLE) <= max_length
            and re.fullmatch(pattern or ".*", ISSUED_SAMPLE) is not None
        )
    if key_format not in VERSIONS:
        return True
    version = VERSIONS[str(key_format)]
    samples = [
        _SAMPLE.format(version=each, variant=variant)
        for each in ([version] if version else range(1, 9))
        for variant in "89ab"
    ]
    spellings = [
        spelling
        for sample in samples
        for plain in (sample, sample.upper())
        for spelling in (plain, plain.replace("-", ""), f"{{{plain}}}", f"urn:uuid:{plain}")
    ]
    return any(
        len(each) <= max_length and re.fullmatch(pattern or ".*", each) for each in spellings
    )


def _fault_of_age(made: float, now: datetime, ttl: float) -> KeyFault | None:
    age = now.timestamp() - made
    if age >= ttl:
        return KeyFault.EXPIRED
    return KeyFault.AHEAD if age < -AHEAD else None


def described(key_format: str | re.Pattern[str]) -> str:
    """Say what a client must send."""
    if key_format == ISSUED:
        return "one that this API has issued"
    if key_format in VERSIONS:
        version = VERSIONS[str(key_format)]
        return "a UUID" if version is None else f"a UUID of version {version}"
    pattern = key_format.pattern if isinstance(key_format, re.Pattern) else key_format
    return f"text that matches {pattern}"


def kept_for(key_format: str | re.Pattern[str], ttl: float) -> float:
    """Return how long a record is kept (seconds), so that no key of this format outlives its
    record.

    Twice AHEAD: once for a key that was dated ahead when it was claimed, once for hosts whose
    clocks differ from the store's by up to half of it, both when the key is claimed and when it is
    judged.
    """
    return ttl + 2 * AHEAD if key_format in DATED else ttl
