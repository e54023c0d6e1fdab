"""The facts, and the marker for "there is none"."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest

from django_idempotency.core.records import MISSING, Guarantee, Missing, Outcome
from django_idempotency.testing.tickets import make_ticket


@pytest.mark.parametrize("answer", [None, 0, "", b"", False, []], ids=repr)
def test_missing_is_no_answer(answer: object) -> None:
    """`None`, zero and the empty are answers; `MISSING` is none of them."""
    assert answer != MISSING


def test_missing_has_no_truth_value() -> None:
    """`if body:` would drop empty answers, so asking it that way fails at once."""
    with pytest.raises(TypeError, match="ask `is MISSING`"):
        bool(MISSING)


def test_missing_is_one() -> None:
    """It stays itself through copies and pickles, so `is` keeps working."""
    assert copy.deepcopy(MISSING) is MISSING
    assert pickle.loads(pickle.dumps(MISSING)) is MISSING
    assert Missing("MISSING") is MISSING
    assert repr(MISSING) == "MISSING"


def test_an_empty_body_is_no_missing_body() -> None:
    """A 204 was stored; an answer too large was not."""
    assert Outcome(status=204).body is MISSING
    assert Outcome(status=204, body=b"") != Outcome(status=204)


def test_facts_do_not_change() -> None:
    """A ticket is computed once."""
    with pytest.raises(FrozenInstanceError):
        make_ticket().lease = 1  # type: ignore[misc]


def test_a_guarantee_reads_as_it_is_typed() -> None:
    """In settings, columns and logs it is its plain name."""
    assert f"{Guarantee.ATOMIC}" == str(Guarantee.ATOMIC) == Guarantee.ATOMIC.value == "atomic"
