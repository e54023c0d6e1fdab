"""Canonical bytes: which requests are the same, and which are not."""

from __future__ import annotations

import json
import tracemalloc
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idempotency.core import hashing
from django_idempotency.testing.tickets import make_ticket

PARTS = st.lists(st.binary(max_size=12), max_size=4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a": 1, "b": 2}', b'{"b": 2, "a": 1}'),  # order of names
        (b'{"a":[1,2]}', b' {\r\n\t"a" : [ 1 , 2 ]\n} '),  # spacing
        (b'"\\u00e9\\ud83d\\ude00\\/"', '"é😀/"'.encode()),  # escapes
        # Decimals move with their names.
        (
            b'{"a": {"y": 1.50, "x": 1e2}}',
            b'{"a": {"x": 1e2, "y": 1.50}}',
        ),
        (b"[true, null, -3, 0]", b"[true,null,-3,0]"),
    ],
)
def test_same_by_value(one: bytes, other: bytes) -> None:
    """Two ways to write one value are one request."""
    assert hashing.canonical_json(one) is not None
    assert hashing.canonical_json(one) == hashing.canonical_json(other)


DISTINCT = [
    b"1",
    b"1.0",  # numbers count by their decimal text
    b"1.00",
    b"1e0",
    b'"1"',
    b"0",
    b"-0",  # an int would lose the sign
    b"0.1",
    b"0.10000000000000000555",  # the same float
    b"9007199254740993",
    b"9007199254740993.0",
    b"9007199254740992.0",  # the same float
    b"12345678901234567890123",
    b"12345678901234567890124",
    b"1e400",  # infinite, as a float
    b"2e400",
    b"null",
    b"false",
    b"true",
    b'""',
    b"[]",
    b"{}",
    b"[[]]",
    b"[null]",
    b'"NaN"',  # the internal placeholder for a decimal
    b"[1.5,2.5]",
    b"[2.5,1.5]",  # order of a list
    b'["NaN",1.5]',
    b'[1.5,"NaN"]',
    b'{"a":1.5,"b":2.5}',
    b'{"a":2.5,"b":1.5}',
    b'{"A":1.5,"b":2.5}',  # case
    b'{"amount":2499,"currency":"inr"}',
    b'{"amount":"2499","currency":"inr"}',
]


def test_distinct_by_value() -> None:
    """No two of these are the same request."""
    canonical = {body: hashing.canonical_json(body) for body in DISTINCT}
    assert None not in canonical.values()
    merged = [body for body in DISTINCT if list(canonical.values()).count(canonical[body]) > 1]
    assert merged == []


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"a=1&b=2", id="a form"),
        pytest.param(b"{} {}", id="two documents"),
        pytest.param(b'{"a": 1, "a": 2}', id="duplicate name: parsers disagree which one counts"),
        pytest.param(b'{"a": 1, "\\u0061": 1}', id="duplicate name, escaped"),
        pytest.param(b'[{"x": {"a": 1, "a": 1}}]', id="duplicate name, inside"),
        pytest.param(b"[NaN]", id="NaN"),
        pytest.param(b"Infinity", id="Infinity"),
        pytest.param(b"-Infinity", id="-Infinity"),
        pytest.param(b'"\xff"', id="no UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', id="no UTF-8: a surrogate"),
        pytest.param(b'\xef\xbb\xbf"a"', id="a byte order mark"),
        pytest.param('"a"'.encode("utf-16"), id="UTF-16"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="nested too deep"),
        pytest.param(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, id="objects nested too deep"),
        pytest.param(b'"' + b"x" * (hashing.MAX_CANONICAL - 1) + b'"', id="a byte too long"),
    ],
)
def test_only_bytes_are_safe(body: bytes) -> None:
    """A body that is not plain JSON is compared by its bytes."""
    assert hashing.canonical_json(body) is None


def test_the_longest_canonical_body() -> None:
    """A body of one mebibyte is still compared by value."""
    body = b'"' + b"x" * (hashing.MAX_CANONICAL - 2) + b'"'
    assert len(body) == hashing.MAX_CANONICAL
    assert hashing.canonical_json(body) is not None


def test_a_number_as_long_as_a_body_is_cheap() -> None:
    """A long number is compared as text, not converted (CVE-2020-10735)."""
    ones = b"1" * (hashing.MAX_CANONICAL - 1)
    assert None is not hashing.canonical_json(ones + b"1") != hashing.canonical_json(ones + b"2")


@pytest.mark.parametrize(
    "item", [b'{"a":0}', b"[]", b"1.5", b"-0", b"999", b'"ab"', '"\N{GRINNING FACE}"'.encode()]
)
def test_no_body_takes_more_than_4_mib_to_compare(item: bytes) -> None:
    """No body takes more than 4 MiB, however many values it has: a longer one is compared by
    bytes.
    """
    items = b",".join([item] * ((hashing.MAX_CANONICAL - 2) // (len(item) + 1)))
    body = b"[" + items + b"]"
    tracemalloc.start()
    try:
        assert hashing.canonical_json(body) is not None
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=6)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON, JSON)
def test_canonical_json_is_by_value(one: object, other: object) -> None:
    """Canonical bytes are equal exactly when the values are written alike, whatever their spacing
    and order.
    """
    compact = hashing.canonical_json(
        json.dumps(one, sort_keys=True, separators=(",", ":")).encode()
    )
    spacious = hashing.canonical_json(json.dumps(one, indent=2, ensure_ascii=False).encode())
    assert compact == spacious
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (compact == hashing.canonical_json(json.dumps(other).encode())) is same


@given(PARTS, PARTS)
def test_framed_borders_cannot_move(one: list[bytes], other: list[bytes]) -> None:
    """No two lists of parts have the same bytes."""
    assert (hashing.framed(one) == hashing.framed(other)) is (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([b"ab", b""], [b"a", b"b"]),
        ([b"1:a,"], [b"a"]),  # a part that looks like a frame
        ([], [b""]),
        ([b"", b""], [b""]),
    ],
)
def test_framed_examples(one: list[bytes], other: list[bytes]) -> None:
    """The same holds for lists that naive joins would confuse."""
    assert hashing.framed(one) != hashing.framed(other)
    assert hashing.request_digest(*one) != hashing.request_digest(*other)


def test_a_request_digest_is_32_bytes() -> None:
    """A request digest fits its column, and never equals "unbound"."""
    assert len(hashing.request_digest()) == 32


@given(st.text(max_size=300), st.text(max_size=300))
def test_record_ids_are_uuids(scope: str, key: str) -> None:
    """Every record's id is a valid UUID by the RFC, as MariaDB's column requires."""
    scope, key = (text.encode(errors="replace").decode() for text in (scope, key))
    made = hashing.record_id(scope, key)
    assert (made.variant, made.version) == (RFC_4122, 5)
    assert made == UUID(str(made)) == hashing.record_id(scope, key)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("user:1", "k"), ("user:2", "k")),
        (("user:1", "k"), ("user:1", "K")),  # MySQL's collations merge these two,
        (("user:1", "k"), ("user:1", "k ")),  # and these two
        (("user:1", "2k"), ("user:12", "k")),  # the border
        (("user:1", "k" * 300), ("user:1", "k" * 301)),  # nothing is truncated
    ],
)
def test_record_ids_are_distinct(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Another scope or key is another record."""
    assert hashing.record_id(*one) != hashing.record_id(*other)


def test_ids_and_keys_stay_as_they_are() -> None:
    """Ids and keys never change: a release that changed one would charge twice, not finding older
    rows.
    """
    assert str(hashing.record_id("user:1", "key-1")) == "34889390-2a58-57e7-a26c-2fe6d7493eaf"
    assert (
        hashing.request_digest(b"POST", b"{}").hex()
        == "845aca7ab311cf79af9c1bb8836695ccd8d88f954a0cc7983e81fed226cf2034"
    )
    assert (
        hashing.derived_key(
            b"secret",
            "stripe",
            scope="user:1",
            key="key-1",
            operation=UUID(int=7),
            request=b"digest",
        )
        == "65b10a0fc401c4e3b195663dcc2da0bbbc7a57b7a1018cccf2b7c86ca230f7e2"
    )
    assert hashing.secret_id(b"secret") == "f87ec820"


def test_a_token_of_a_sleep_stays_as_it_is() -> None:
    """A suspension's token never changes: executions that sleep during a release must find their
    records again.
    """
    record = hashing.record_id("call:shop.fulfil", "k")
    name = "arn:aws:lambda:eu-central-1:1:function:f:1/durable-execution/17"
    assert str(hashing.suspension_token(name, record, 2)) == "b227c390-873f-5a1b-99d6-c0e61427458c"
    others = [
        (f"{name}1", record, 2),
        (name, hashing.record_id("call:shop.fulfil", "l"), 2),
        (name, record, 21),
    ]
    assert len({hashing.suspension_token(*given) for given in [(name, record, 2), *others]}) == 4


@pytest.mark.parametrize(
    "changed",
    [
        {"secret": b"other"},
        {"scope": "sk", "key": ""},
        {"operation": UUID(int=8)},
        {"request": b"rl", "label": ""},
        {"label": ""},
    ],
)
def test_derived_keys_depend_on_all_of_it(changed: dict[str, Any]) -> None:
    """Changing the secret, scope, key, operation, request or label changes the key, and their
    borders cannot move.
    """
    given: dict[str, Any] = {
        "secret": b"secret",
        "scope": "s",
        "key": "k",
        "operation": UUID(int=7),
        "request": b"r",
        "label": "l",
    }
    key = hashing.derived_key(**given)
    assert len(key) == 64
    assert hashing.derived_key(**given | changed) != key


def test_the_operation_that_follows_stays_as_it_is() -> None:
    """Two owners of one expired record name the same next operation, in two releases too; none
    follows itself.
    """
    operations = [UUID(int=7)]
    for _ in range(3):
        operations.append(hashing.next_operation(operations[-1]))
    assert str(operations[1]) == "25dcd317-11ef-5ec8-8bbd-b417f2cd2604"
    assert len(set(operations)) == 4


def test_the_first_operation_of_a_key_follows_from_its_record_and_its_day() -> None:
    """A claim that a store has lost gets the same operation again; a key used after its retention
    gets another.
    """
    day, began = 86_400, datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
    first = hashing.first_operation(make_ticket(id=UUID(int=7), now=began, ttl=day))
    assert str(first) == "bbc043d2-255a-5950-963d-b7e06ec10547"
    assert (
        hashing.first_operation(
            make_ticket(id=UUID(int=7), now=began + timedelta(hours=9), ttl=day)
        )
        == first
    )
    for skew in (0, 2 * 3600):  # the later host's clock may be behind
        assert (
            hashing.first_operation(
                make_ticket(id=UUID(int=7), now=began + timedelta(seconds=day - skew), ttl=day)
            )
            != first
        )
    assert hashing.first_operation(make_ticket(id=UUID(int=8), now=began, ttl=day)) != first


def test_the_names_of_operations_never_change() -> None:
    """The names of operations never change: a stored record names its operation, and derived keys
    depend on it.
    """
    record = UUID("6d1b9119-1335-534e-a92a-0de9614d4e37")
    first = hashing.first_operation(
        make_ticket(id=record, now=datetime(2026, 1, 1, tzinfo=timezone.utc), ttl=86400)
    )
    assert str(first) == "263351ea-f792-5085-af8a-46cd74fb1116"
    assert str(hashing.next_operation(record)) == "c63e46c0-0ffd-522c-9a50-8d557ff77953"


def test_a_secret_is_named_without_being_revealed() -> None:
    """The secret's id fits its column, and is not part of what the secret signs."""
    assert len(hashing.secret_id(b"secret")) == 8
    assert hashing.secret_id(b"secret") != hashing.secret_id(b"other")
