"""A record as one value: packed records come back, and nothing else is mistaken for a record."""

from __future__ import annotations

import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idempotency.core.records import MISSING, Outcome, Record, Status
from django_idempotency.core.rules import born
from django_idempotency.stores.key_value import packing
from django_idempotency.stores.key_value.packing import Malformed
from django_idempotency.testing.tickets import NOW, make_ticket

SIGNATURE = b"s" * packing.SIGNATURE

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
outcomes = st.none() | st.builds(
    Outcome,
    status=st.integers(100, 599),
    headers=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    body=st.just(MISSING)
    | st.binary(max_size=64)
    | st.binary(min_size=1, max_size=4).map(lambda part: part * 1000),
)


def record(**fields: object) -> Record:
    return born(make_ticket(), NOW)._replace(**fields)  # type: ignore[arg-type]


fields = st.fixed_dictionaries(
    {
        "outcome": outcomes,
        "attempt": st.integers(1, 2**32 - 1),
        "status": st.sampled_from(Status),
        "scope": texts,
        "key": texts,
        "request_id": st.text("!~-0aZ", max_size=128),
    }
)


@given(fields)
def test_what_is_packed_comes_back(given_fields: dict[str, Any]) -> None:
    """Every field comes back, whatever it contains."""
    packed = record(**given_fields)
    assert packing.unpack(packing.pack(packed, SIGNATURE), packed.id, packed.read_at) == packed


@given(st.binary(max_size=200))
def test_other_bytes_are_no_record(value: bytes) -> None:
    """Other bytes are refused with the one exception that stores expect."""
    with pytest.raises(Malformed):
        packing.unpack(value, make_ticket().id, NOW)


@given(st.integers(1, 60))
def test_a_record_cut_short(cut: int) -> None:
    """A truncated record is refused; nothing is invented."""
    whole = packing.pack(record(outcome=Outcome(status=201, body=b"x" * 50)), SIGNATURE)
    with pytest.raises(Malformed):
        packing.unpack(whole[:-cut], make_ticket().id, NOW)


def test_a_body_over_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body too large to be inflated is not deflated: a stored response is never lost to the
    limit.
    """
    monkeypatch.setattr(packing, "INFLATE_LIMIT", 5000)
    for size in (4999, 5000, 5001, 9000):
        outcome = Outcome(status=200, body=b"0" * size)
        packed = packing.pack_outcome(outcome)
        assert packing.unpack_outcome(packed) == outcome
        assert (len(packed) < size) is (size <= 5000)


def test_a_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that claims to inflate beyond the limit is refused, unread."""
    packed = packing.pack_outcome(Outcome(status=200, body=b"0" * 5000))
    monkeypatch.setattr(packing, "INFLATE_LIMIT", 4999)
    with pytest.raises(Malformed):
        packing.unpack_outcome(packed)


@pytest.mark.parametrize("size", [1, 1000])
def test_a_bomb_that_lies(size: int) -> None:
    """A value that inflates to more than it claims is refused, and is never completely in
    memory.
    """
    deflated = zlib.compress(bytes(32 * 1024 * 1024), 9)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            packing.inflate(deflated, size)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(deflated) < 1024 * 1024
