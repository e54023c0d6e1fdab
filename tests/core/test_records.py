"""The facts, and the marker for "there is none"."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest

from django_idempotency.core.records import MISSING, Guarantee, Missing, Outcome, changed
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


def test_a_fact_has_no_other_fields() -> None:
    """A ticket is computed once. That its fields stay as they are, type checkers see: tests/typing says how."""
    with pytest.raises(AttributeError):
        make_ticket().leese = 1  # type: ignore[attr-defined]


def test_an_outcome_does_not_change() -> None:
    """What one reader made of it would be everybody's: stores in this process hand out the one they have."""
    with pytest.raises(AttributeError):
        Outcome(status=200).status = 500  # type: ignore[misc]


def test_a_changed_fact_is_another() -> None:
    """As `dataclasses.replace` has it."""
    ticket = make_ticket()
    later = changed(ticket, lease=7.0, path="/later")
    assert later == replace(ticket, lease=7.0, path="/later") != ticket
    assert ticket == make_ticket(now=ticket.now, owner=ticket.owner)
    with pytest.raises(AttributeError):
        changed(ticket, leese=7.0)


def test_a_guarantee_reads_as_it_is_typed() -> None:
    """In settings, columns and logs it is its plain name."""
    assert f"{Guarantee.ATOMIC}" == str(Guarantee.ATOMIC) == Guarantee.ATOMIC.value == "atomic"
