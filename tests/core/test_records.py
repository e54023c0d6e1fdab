"""The facts, and the marker for "there is none"."""

from __future__ import annotations

import ast
import copy
import pickle
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

import django_idempotency
from django_idempotency.core.conclusions import SettledState, settled
from django_idempotency.core.conclusions import settlement as rules_settlement
from django_idempotency.core.hashing import first_operation, next_operation
from django_idempotency.core.records import (
    MISSING,
    Guarantee,
    Missing,
    Outcome,
    Record,
    Settlement,
    Status,
    Ticket,
)
from django_idempotency.core.rules import Execute, Replay, born
from django_idempotency.stores.key_value import packing
from django_idempotency.testing.tickets import make_ticket


@pytest.mark.parametrize("answer", [None, 0, "", b"", False, []], ids=repr)
def test_missing_is_not_a_result(answer: object) -> None:
    """`None`, zero and empty values are values; `MISSING` equals none of them."""
    assert answer != MISSING


def test_missing_has_no_truth_value() -> None:
    """`if body:` would drop empty responses, so a truth test of `MISSING` fails at once."""
    with pytest.raises(TypeError, match="ask `is MISSING`"):
        bool(MISSING)


def test_missing_is_one() -> None:
    """It stays the same object through copies and pickles, so `is` keeps working."""
    assert copy.deepcopy(MISSING) is MISSING
    assert pickle.loads(pickle.dumps(MISSING)) is MISSING
    assert Missing("MISSING") is MISSING
    assert repr(MISSING) == "MISSING"


def test_an_empty_body_is_not_a_missing_body() -> None:
    """The empty body of a 204 was stored; a body that was too large was not."""
    assert Outcome(status=204).body is MISSING
    assert Outcome(status=204, body=b"") != Outcome(status=204)


FACTS = (
    make_ticket(),
    born(make_ticket(), datetime(2030, 1, 1, tzinfo=timezone.utc)),
    Settlement(status=Status.FREE, fence=UUID(int=1), attempt=1, digest=b"", operation=UUID(int=2)),
    Execute(attempt=1),
    Replay(outcome=Outcome(status=204), attempt=1),
)


@pytest.mark.parametrize("fact", FACTS, ids=type)
def test_a_fact_does_not_change(fact: NamedTuple) -> None:
    """Facts are immutable: a ticket is computed once, and a store in this process returns its own
    record.
    """
    for name in (*fact._fields, "another"):
        with pytest.raises(AttributeError):
            setattr(fact, name, None)


def by_position(text: str) -> list[int]:
    """Return the lines that make a fact by position."""
    names = {type(fact).__name__ for fact in FACTS}
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and node.args]
    return [
        call.lineno
        for call in calls
        if getattr(call.func, "id", getattr(call.func, "attr", None)) in names
    ]


def test_facts_are_made_by_keyword() -> None:
    """No code makes a fact by position: a position says nothing about a field, and many fields are
    text.
    """
    root = Path(django_idempotency.__file__).parent
    found = {str(path): by_position(path.read_text()) for path in root.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert by_position("Execute(attempt=1)\nExecute(1)\nrules.Execute(*facts)") == [2, 3]


def test_an_outcome_does_not_change() -> None:
    """An outcome is immutable: stores in this process return their own instance, which all readers
    share.
    """
    with pytest.raises(AttributeError):
        Outcome(status=200).status = 500  # type: ignore[misc]


def test_facts_are_compared_by_value() -> None:
    """Facts are compared by value, also in sets and after a pickle."""
    ticket = make_ticket()
    assert (
        {ticket}
        == {make_ticket(now=ticket.now, owner=ticket.owner)}
        == {pickle.loads(pickle.dumps(ticket))}
    )
    assert ticket != ticket._replace(lease=7.0)


# ----------------------------------------------------------------------- each field is in its place

NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)
TICKET = Ticket(
    id=UUID(int=1),
    scope="scope",
    key="key",
    digest=b"digest",
    owner=UUID(int=2),
    now=NOW,
    lease=10.0,
    ttl=100.0,
    guarantee=Guarantee.LEASE,
    secret_id="secret",
    method="POST",
    path="/path",
    request_id="req-2",
)
#: No two fields of one type are equal.
KNOWN = Record(
    id=TICKET.id,
    scope="scope",
    key="key",
    digest=b"known",
    status=Status.COMPLETED,
    owner=UUID(int=3),
    attempt=4,
    guarantee=Guarantee.ATOMIC,
    lease_until=NOW + timedelta(seconds=1),
    created_at=NOW - timedelta(seconds=2),
    completed_at=NOW - timedelta(seconds=1),
    expires_at=NOW + timedelta(seconds=2),
    purge_at=NOW + timedelta(seconds=4),
    read_at=NOW + timedelta(seconds=3),
    operation=UUID(int=5),
    secret_id="older",
    method="PUT",
    path="/older",
    request_id="req-1",
    outcome=Outcome(status=201, headers=(("X-Name", "value"),), body=b"body"),
)


def test_a_record_is_born_of_its_ticket() -> None:
    """A new record takes each field from its ticket."""
    assert born(TICKET, NOW) == Record(
        id=TICKET.id,
        scope="scope",
        key="key",
        digest=b"digest",
        status=Status.RUNNING,
        owner=TICKET.owner,
        attempt=1,
        guarantee=Guarantee.LEASE,
        lease_until=NOW + timedelta(seconds=10),
        created_at=NOW,
        completed_at=None,
        expires_at=NOW + timedelta(seconds=100),
        purge_at=NOW + timedelta(seconds=100),
        read_at=NOW,
        operation=first_operation(TICKET),
        secret_id="secret",
        method="POST",
        path="/path",
        request_id="req-2",
    )


@pytest.mark.parametrize("new_life", [True, False])
def test_a_record_is_settled(new_life: bool) -> None:
    """For a new life the settled record takes the ticket's values, otherwise the known ones."""
    outcome, later = Outcome(status=204, body=b""), NOW + timedelta(seconds=5)
    settlement = Settlement(
        status=Status.COMPLETED,
        fence=KNOWN.owner,
        attempt=5,
        digest=b"settled",
        operation=UUID(int=6),
        outcome=outcome,
        expires_in=50.0,
        new_life=new_life,
        lease_in=20.0,
    )
    reborn: dict[str, Any] = {
        "created_at": later,
        "completed_at": later,
        "guarantee": Guarantee.LEASE,
    }
    reborn |= {"operation": UUID(int=6), "secret_id": "secret", "method": "POST", "path": "/path"}
    assert settled(TICKET, KNOWN._replace(joined=True), settlement, later) == KNOWN._replace(
        digest=b"settled",
        owner=TICKET.owner,
        request_id=TICKET.request_id,
        attempt=5,
        lease_until=later + timedelta(seconds=20),
        expires_at=later + timedelta(seconds=50),
        purge_at=later + timedelta(seconds=50),
        outcome=outcome,
        joined=True,
        **(reborn if new_life else {}),
    )


def test_a_record_is_unpacked() -> None:
    """A record is unpacked as it was packed."""
    packed = packing.pack(KNOWN, b"s" * packing.SIGNATURE)
    assert packing.unpack(packed, KNOWN.id, KNOWN.read_at) == KNOWN


@pytest.mark.parametrize(
    ("fence", "ttl", "expires_in"),
    [(None, None, None), (KNOWN, None, 100.0), (KNOWN, 7.0, 7.0), (None, 0.0, 0.0)],
)
def test_a_settlement(fence: Record | None, ttl: float | None, expires_in: float | None) -> None:
    """A takeover is fenced by the previous owner, and restarts the retention."""
    outcome = Outcome(status=204)
    run = Execute(attempt=6, takeover=True, new_life=True)
    assert rules_settlement(
        SettledState.COMPLETED, TICKET, run, fence=fence, outcome=outcome, ttl=ttl
    ) == Settlement(
        status=Status.COMPLETED,
        fence=TICKET.owner if fence is None else KNOWN.owner,
        attempt=6,
        digest=b"digest",
        operation=first_operation(TICKET) if fence is None else next_operation(KNOWN.operation),
        outcome=outcome,
        expires_in=expires_in,
        new_life=True,
    )


def test_a_guarantee_reads_as_it_is_typed() -> None:
    """In settings, columns and logs a guarantee is its plain name."""
    assert f"{Guarantee.ATOMIC}" == str(Guarantee.ATOMIC) == Guarantee.ATOMIC.value == "atomic"
