"""What a key may look like: one spelling for each key, and the window in which a dated one is
accepted.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idempotency.core.key_formats import (
    AHEAD,
    KeyFault,
    described,
    is_format,
    kept_for,
    spelled,
)

NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)
DAY = 86400.0
MALFORMED, EXPIRED, DATED_AHEAD = KeyFault.MALFORMED, KeyFault.EXPIRED, KeyFault.AHEAD

V1 = "c232ab00-9414-11ec-b3c8-9f6bdeced846"  # those of RFC 9562, appendix A
V4 = "919108f7-52d1-4320-9bac-f847db4148a8"
V7 = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
NIL, MAX = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"


def uuid7(age: float) -> str:
    """Return a UUIDv7 that was made `age` seconds before NOW."""
    milliseconds = round((NOW.timestamp() - age) * 1000)
    return str(UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62 | 0x1234567890))


#: Format, key → the spelling that is kept, or the fault.
KEYS: list[tuple[Any, str, str | KeyFault]] = [
    ("any", "order-17", "order-17"),
    ("any", V4.upper(), V4.upper()),  # opaque: not known to be a UUID
    # ---- spellings of a UUID: one key
    ("uuid", V4, V4),
    ("uuid", V4.upper(), V4),  # Swift, SQL Server
    ("uuid", V4.replace("-", ""), V4),  # Python's hex, .NET's "N"
    ("uuid", "{" + V4.upper() + "}", V4),  # .NET's "B", COM
    ("uuid", f"urn:uuid:{V4}", V4),
    ("uuid", f"URN:UUID:{V4.upper()}", V4),
    # ---- what is not one
    ("uuid", "", MALFORMED),
    ("uuid", "order-17", MALFORMED),
    ("uuid", V4[:-1], MALFORMED),
    ("uuid", f"{V4}0", MALFORMED),
    ("uuid", f" {V4}", MALFORMED),
    ("uuid", f"{V4}\n", MALFORMED),
    ("uuid", "{" + V4, MALFORMED),
    ("uuid", V4.replace("-", "_"), MALFORMED),
    ("uuid", V4[:8] + V4[9:], MALFORMED),  # some hyphens, as Python's UUID() accepts
    ("uuid", "(" + V4 + ")", MALFORMED),
    ("uuid", V4.replace("4", "\u0664", 1), MALFORMED),  # another script's four
    ("uuid", NIL, MALFORMED),  # what a client sends that has made no key
    ("uuid", MAX, MALFORMED),
    ("uuid", "{" + NIL + "}", MALFORMED),
    # ---- versions
    ("uuid", V1, V1),
    ("uuid", V7, V7),  # its age does not count
    # Neither.
    (
        "uuid",
        "919108f7-52d1-0320-cbac-f847db4148a8",
        "919108f7-52d1-0320-cbac-f847db4148a8",
    ),
    ("uuid4", V4, V4),
    ("uuid4", V4.upper(), V4),
    ("uuid4", V1, MALFORMED),
    ("uuid4", V7, MALFORMED),
    ("uuid4", "919108f7-52d1-4320-cbac-f847db4148a8", MALFORMED),  # Microsoft's variant
    ("uuid7", V4, MALFORMED),
    ("uuid7", V7, EXPIRED),  # of 2022
    # ---- the window
    ("uuid7", uuid7(0), uuid7(0)),
    ("uuid7", uuid7(0).upper(), uuid7(0)),
    ("uuid7", uuid7(DAY - 0.001), uuid7(DAY - 0.001)),
    ("uuid7", uuid7(DAY), EXPIRED),  # the deadline itself is past, as a record's is
    ("uuid7", uuid7(-AHEAD), uuid7(-AHEAD)),
    ("uuid7", uuid7(-AHEAD - 0.001), DATED_AHEAD),
    ("uuid7", "ffffffff-ffff-7fff-bfff-ffffffffffff", DATED_AHEAD),  # of the year 10889
    # ---- regular expressions: all of the key
    (r"[A-Z]{3}-\d+", "ABC-17", "ABC-17"),
    (r"[A-Z]{3}-\d+", "ABC-17x", MALFORMED),
    (r"[A-Z]{3}-\d+", "abc-17", MALFORMED),
    (re.compile(r"[a-z]{3}-\d+", re.IGNORECASE), "ABC-17", "ABC-17"),
    (re.compile(r"a|b"), "ab", MALFORMED),
]


@pytest.mark.parametrize(("key_format", "key", "kept"), KEYS, ids=range(len(KEYS)))
def test_each_key(key_format: Any, key: str, kept: str | KeyFault) -> None:
    """The table."""
    assert spelled(key, key_format, now=NOW, ttl=DAY) == kept


@given(
    st.uuids(),
    st.sampled_from([str, lambda u: u.hex, lambda u: u.urn, lambda u: f"{{{u}}}"]),
    st.booleans(),
)
def test_a_uuid_is_one_key(uuid: UUID, write: Any, upper: bool) -> None:
    """However it is written, and a kept spelling is kept again."""
    sent = write(uuid).upper() if upper else write(uuid)
    assert spelled(sent, "uuid", now=NOW, ttl=DAY) == str(uuid)


@pytest.mark.parametrize("ttl", [1.0, 60.0, DAY])
@pytest.mark.parametrize("dated", [0.0, AHEAD])
@pytest.mark.parametrize("skew", [-AHEAD / 2, 0.0, AHEAD / 2])
def test_no_key_outlives_its_record(ttl: float, dated: float, skew: float) -> None:
    """Whatever the clocks: at the end of its record a key is refused, so no request runs a second
    time.

    `skew` is by how much the host that claims is ahead of the store's clock. The one that judges is
    behind by as much.
    """
    record_ends = kept_for("uuid7", ttl)  # claimed when the store's clock is at zero
    key = uuid7(-skew - dated)
    judging = NOW + timedelta(seconds=record_ends - abs(skew))
    assert spelled(key, "uuid7", now=judging, ttl=ttl) is EXPIRED
    assert spelled(key, "uuid7", now=NOW + timedelta(seconds=skew), ttl=ttl) == key


def test_other_records_are_kept_as_long_as_the_policy_says() -> None:
    """Only dated keys need more."""
    assert {kept_for(name, DAY) for name in ("any", "uuid", "uuid4", r"\d+")} == {DAY}


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ("any", True),
        ("uuid7", True),
        (r"[A-Z]{3}-\d+", True),
        (re.compile("abc"), True),
        ("uuid5", False),  # a name, and not an expression that matches only itself
        ("UUID", False),
        ("issued", True),
        ("issued-by-us", False),
        ("", False),
        ("(", False),
        (re.compile(b"abc"), False),
        (None, False),
        (4, False),
    ],
)
def test_formats(value: Any, accepted: bool) -> None:
    """A word must be a name that we know; anything else is an expression, which must compile."""
    assert is_format(value) is accepted


@pytest.mark.parametrize(
    ("key_format", "words"),
    [
        ("uuid", "a UUID"),
        ("uuid7", "a UUID of version 7"),
        ("issued", "one that this API has issued"),
        (r"\d+", r"text that matches \d+"),
        (re.compile(r"\d+"), r"text that matches \d+"),
    ],
    ids=range(5),
)
def test_what_a_client_is_told(key_format: Any, words: str) -> None:
    """The problem document says what to send."""
    assert described(key_format) == words
