"""How a call ends: the second half of `core/rules.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_idempotency.core import rules
from django_idempotency.core.hashing import next_operation
from django_idempotency.core.records import Record, Settlement, Status
from django_idempotency.core.rules import Conclusion, Ending, Execute, Leave
from django_idempotency.testing.tickets import make_ticket

from .test_rules import FIRST, OTHER, OUTCOME, SAME, record

TICKET = make_ticket()


@pytest.mark.parametrize(
    ("statuses", "ended"),
    [
        ([200, 201, 204, 301, 302, 304], Ending.KEPT),
        ([400, 401, 403, 408, 409, 415, 425, 429], Ending.DROPPED),  # corrected, authorised, repeated or resolved
        ([402, 404, 405, 406, 410, 412, 413, 414, 418, 422, 428, 451], Ending.KEPT),  # the same again would be the same
        ([500, 502, 503, 504, 599], Ending.FAILED),
    ],
)
def test_ending(statuses: list[int], ended: Ending) -> None:
    """A status says whether its answer is remembered, dropped or a failure."""
    assert {rules.ending(status) for status in statuses} == {ended}


@pytest.mark.parametrize(
    ("status", "kept", "ended"),
    [
        (409, {409}, Ending.KEPT),  # as the policy says
        (403, {409}, Ending.DROPPED),
        (409, set(), Ending.DROPPED),
        (500, {500}, Ending.FAILED),  # nobody can ask for a failure to be remembered
    ],
)
def test_ending_with_a_policy(status: int, kept: set[int], ended: Ending) -> None:
    """A policy can keep a refusal, and never a failure."""
    assert rules.ending(status, kept) is ended


@pytest.mark.parametrize(
    ("ended", "needs_rollback", "leave", "commit"),
    [
        (Ending.KEPT, False, Leave.COMPLETED, True),  # the promise: both
        (Ending.KEPT, True, Leave.COMPLETED, False),  # the view gave its writes up, not its answer
        (Ending.DROPPED, False, Leave.FREE, True),  # a counted PIN stays counted
        (Ending.DROPPED, True, Leave.FREE, False),
        (Ending.FAILED, False, Leave.BOUND, False),  # as if the call had never been
        (Ending.FAILED, True, Leave.BOUND, False),
        (Ending.CUT, False, Leave.HELD, False),  # nobody knows what still runs
        (Ending.CUT, True, Leave.HELD, False),
    ],
)
def test_conclude(ended: Ending, needs_rollback: bool, leave: Leave, commit: bool) -> None:
    """What is remembered and what is committed are two questions; this is their table."""
    assert rules.conclude(ended, needs_rollback=needs_rollback) == Conclusion(leave=leave, commit=commit)


def test_every_ending_has_its_conclusions() -> None:
    """No way to end is forgotten by the table."""
    assert set(rules.CONCLUSIONS) == {(ended, needs_rollback) for ended in Ending for needs_rollback in (False, True)}


@pytest.mark.parametrize(
    ("ended", "leave"),
    [
        (Ending.KEPT, Leave.COMPLETED),
        (Ending.DROPPED, Leave.FREE),  # a refusal is no failure
        (Ending.FAILED, Leave.HELD),
        (Ending.CUT, Leave.HELD),
    ],
)
@pytest.mark.parametrize("needs_rollback", [False, True])
def test_hold_failures(ended: Ending, leave: Leave, needs_rollback: bool) -> None:
    """`on_failure="hold"` keeps a failed call's key busy, and changes nothing else."""
    held = rules.conclude(ended, needs_rollback=needs_rollback, hold_failures=True)
    assert held == Conclusion(leave=leave, commit=rules.conclude(ended, needs_rollback=needs_rollback).commit)


OURS = record(owner=TICKET.owner)
THEIRS = record(owner=OTHER)  # a takeover: locked, and not written before the settle
COMPLETED = Settlement(
    status=Status.COMPLETED, fence=TICKET.owner, attempt=1, digest=SAME, operation=FIRST, outcome=OUTCOME
)


@pytest.mark.parametrize(
    ("leave", "fence", "ttl", "settlement"),
    [
        (Leave.COMPLETED, None, None, replace(COMPLETED, operation=rules.operation_begun_by(TICKET))),  # just born
        (Leave.COMPLETED, OURS, None, COMPLETED),  # the deadline of the claim stays: no index entry moves
        (Leave.COMPLETED, OURS, 60.0, replace(COMPLETED, expires_in=60.0)),  # this one response's own
        (Leave.COMPLETED, OURS, 0.0, replace(COMPLETED, expires_in=0.0)),  # zero is a ttl, too
        (Leave.COMPLETED, THEIRS, None, replace(COMPLETED, fence=OTHER, expires_in=TICKET.ttl)),  # starts anew
        (Leave.COMPLETED, THEIRS, 60.0, replace(COMPLETED, fence=OTHER, expires_in=60.0)),
        # released: without its answer; a refused request may be corrected, a failed one must come again
        (Leave.FREE, OURS, None, replace(COMPLETED, status=Status.FREE, digest=b"", outcome=None)),
        (Leave.BOUND, OURS, None, replace(COMPLETED, status=Status.FREE, outcome=None)),
        (
            Leave.BOUND,
            THEIRS,
            None,
            replace(COMPLETED, status=Status.FREE, fence=OTHER, outcome=None, expires_in=TICKET.ttl),
        ),
        (Leave.HELD, OURS, None, None),  # nothing is written
    ],
)
def test_settlement(leave: Leave, fence: Record | None, ttl: float | None, settlement: Settlement | None) -> None:
    """A settlement is fenced by whoever owned the row when it was locked, and carries this run's facts."""
    made = rules.settlement(leave, TICKET, Execute(attempt=1), fence=fence, outcome=OUTCOME, ttl=ttl)
    assert made == settlement


def test_a_new_life_is_settled_as_one() -> None:
    """The attempt, the new life and its operation reach the store."""
    run = Execute(attempt=1, new_life=True)
    made = rules.settlement(Leave.COMPLETED, TICKET, run, fence=THEIRS, outcome=OUTCOME, ttl=None)
    assert made is not None
    assert (made.attempt, made.new_life, made.operation) == (1, True, next_operation(FIRST))


def test_later_attempts_are_counted() -> None:
    """The attempt that ran is the attempt that is written."""
    made = rules.settlement(Leave.BOUND, TICKET, Execute(attempt=5), fence=OURS, outcome=None, ttl=None)
    assert made is not None
    assert made.attempt == 5
