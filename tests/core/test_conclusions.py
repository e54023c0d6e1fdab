"""How a call ends, and what is written then: every row of `core/conclusions.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import override_settings

from django_idempotency.conf import resolve
from django_idempotency.core import conclusions
from django_idempotency.core.conclusions import (
    Conclusion,
    ResponseEnding,
    Rollback,
    SettledState,
    WorkResult,
)
from django_idempotency.core.hashing import first_operation, next_operation
from django_idempotency.core.policy import Policy
from django_idempotency.core.records import Record, Settlement, Status
from django_idempotency.core.rules import Execute
from django_idempotency.testing.tickets import make_ticket

from .test_rules import FIRST, OTHER, OUTCOME, SAME, record

TICKET = make_ticket()


@pytest.mark.parametrize(
    ("statuses", "ended"),
    [
        ([200, 201, 204, 301, 302, 304], WorkResult.KEPT),
        # Corrected, authorised, repeated or resolved.
        (
            [400, 401, 403, 408, 409, 412, 415, 425, 428, 429],
            WorkResult.DROPPED,
        ),
        # The same request would get the same response.
        (
            [402, 404, 405, 406, 410, 413, 414, 418, 422, 451],
            WorkResult.KEPT,
        ),
        ([500, 502, 503, 504, 599], WorkResult.FAILED),
    ],
)
def test_ending(statuses: list[int], ended: WorkResult) -> None:
    """A status determines whether its response is remembered, dropped or a failure."""
    assert {conclusions.classify_status(status) for status in statuses} == {ended}


@pytest.mark.parametrize(
    ("status", "wanted", "ended"),
    [
        # Its function has examined the response, or its set names the status.
        (
            403,
            True,
            WorkResult.KEPT,
        ),
        (201, False, WorkResult.DROPPED),
        (403, None, WorkResult.DROPPED),  # it does not decide
        (500, True, WorkResult.FAILED),
    ],
)
def test_ending_with_a_policy(status: int, wanted: bool | None, ended: WorkResult) -> None:
    """The policy's `keep` decides below 500; it can never keep a failure."""
    assert conclusions.classify_status(status, wanted) is ended


@pytest.mark.parametrize(
    ("status", "raised", "inside", "answers", "commit"),
    [
        (201, False, False, True, True),
        (201, False, True, True, True),
        (404, False, True, True, True),
        # Even one that the view keeps: its writes are rolled back.
        (503, False, False, True, False),
        (503, False, True, True, False),
        (404, True, False, True, True),  # as without a guard
        # The exception rolls back the transaction that the record is in.
        (404, True, True, False, False),
        (500, True, False, False, False),
        (500, True, True, False, False),
    ],
)
def test_a_response_that_was_returned_or_raised(
    status: int, raised: bool, inside: bool, answers: bool, commit: bool
) -> None:
    """A returned or raised response is stored or not, and earlier writes are committed or not, as
    in this table.

    `inside`: the record is in a transaction of the project's.
    """
    expected = ResponseEnding(answers=answers, commit=commit)
    assert conclusions.response_ending(status, raised=raised, inside=inside) == expected


@pytest.mark.parametrize(
    ("has_begun", "needs_rollback", "stored"),
    [
        (True, False, True),  # a retry would repeat what was done
        (True, True, False),  # its writes will not be there
        (False, False, False),
        (False, True, False),
    ],
)
def test_a_library_that_executes(has_begun: bool, needs_rollback: bool, stored: bool) -> None:
    """Its word that nothing was begun frees the key, as under GraphQL, where a status says
    nothing.
    """
    assert conclusions.keeps_begun(has_begun=has_begun, needs_rollback=needs_rollback) is stored


@pytest.mark.parametrize("ended", [WorkResult.KEPT, WorkResult.DROPPED])
def test_a_success_is_what_is_committed(ended: WorkResult) -> None:
    """What an error rolls back is withheld, and its key bound; a dry run is sent, and nothing of it
    is remembered.
    """
    done = conclusions.conclude(ended, Rollback.NONE)
    assert (done.commit, done.withheld) == (True, False)
    dry = conclusions.conclude(ended, Rollback.ASKED)
    assert dry == Conclusion(state=SettledState.FREE, commit=False)
    undone = conclusions.conclude(ended, Rollback.ERROR)
    assert undone == Conclusion(state=SettledState.BOUND, commit=False, withheld=True)


def test_every_success_has_its_conclusions() -> None:
    """The table covers each success that is rolled back or not, and remembers none whose writes are
    gone.
    """
    ended = (WorkResult.KEPT, WorkResult.DROPPED)
    assert set(conclusions.SUCCESSES) == {(each, cause) for each in ended for cause in Rollback}
    for conclusion in conclusions.SUCCESSES.values():
        assert conclusion.state is not SettledState.COMPLETED or conclusion.commit


@pytest.mark.parametrize(
    ("ended", "needs_rollback", "leave", "commit"),
    [
        (WorkResult.KEPT, False, SettledState.COMPLETED, True),  # a refusal that is remembered
        (WorkResult.KEPT, True, SettledState.COMPLETED, False),  # as REST framework marks it
        (WorkResult.DROPPED, False, SettledState.FREE, True),  # a counted PIN stays counted
        (WorkResult.DROPPED, True, SettledState.FREE, False),
        (WorkResult.FAILED, False, SettledState.BOUND, False),  # as if the call had never been made
        (WorkResult.FAILED, True, SettledState.BOUND, False),
        (WorkResult.CUT, False, SettledState.LEASED, False),  # it is unknown what still runs
        (WorkResult.CUT, True, SettledState.LEASED, False),
    ],
)
def test_conclude(
    ended: WorkResult, needs_rollback: bool, leave: SettledState, commit: bool
) -> None:
    """Of what is no success, remembering and committing are two questions; this is their table."""
    for cause in (Rollback.ASKED, Rollback.ERROR) if needs_rollback else (Rollback.NONE,):
        found = conclusions.conclude(ended, cause, succeeded=False)
        assert found == Conclusion(state=leave, commit=commit)


def test_every_ending_has_its_conclusions() -> None:
    """The table covers every way to end."""
    assert set(conclusions.CONCLUSIONS) == {
        (ended, needs_rollback) for ended in WorkResult for needs_rollback in (False, True)
    }


@pytest.mark.parametrize(
    ("on_failure", "state"), [("hold", SettledState.LEASED), ("forget", SettledState.FORGOTTEN)]
)
@pytest.mark.parametrize("cause", Rollback)
@pytest.mark.parametrize("succeeded", [True, False])
@pytest.mark.parametrize("ended", WorkResult)
def test_on_failure(
    ended: WorkResult, succeeded: bool, cause: Rollback, on_failure: str, state: SettledState
) -> None:
    """It says what becomes of a failed call's record, and changes nothing else: a refusal is not a
    failure.
    """
    usual = conclusions.conclude(ended, cause, succeeded=succeeded)
    failed = ended is WorkResult.FAILED or usual.withheld
    expected = replace(usual, state=state) if failed else usual
    assert conclusions.conclude(ended, cause, on_failure, succeeded=succeeded) == expected


@pytest.mark.parametrize(
    ("guarantee", "on_failure", "means"),
    [
        ("atomic", "hold", "free"),  # nothing is under way
        ("atomic", "forget", "forget"),
        ("lease", "hold", "hold"),
    ],
)
def test_on_failure_under_a_guarantee(guarantee: str, on_failure: str, means: str) -> None:
    """What the settings say for routes with another guarantee changes nothing."""
    with override_settings(IDEMPOTENCY={"ON_FAILURE": on_failure}):
        assert resolve(Policy(guarantee=guarantee)).on_failure == means


def test_lease_proves_nothing() -> None:
    """A failed lease is not forgotten: its writes stay.

    The setting for all routes means the atomic ones.
    """
    with pytest.raises(ValueError, match='means nothing with guarantee="lease"'):
        resolve(Policy(guarantee="lease", on_failure="forget"))
    with override_settings(IDEMPOTENCY={"ON_FAILURE": "forget"}):
        assert resolve(Policy(guarantee="lease")).on_failure == "free"


OURS = record(owner=TICKET.owner)
THEIRS = record(owner=OTHER)  # a takeover: locked, and not written before the settle
COMPLETED = Settlement(
    status=Status.COMPLETED,
    fence=TICKET.owner,
    attempt=1,
    digest=SAME,
    operation=FIRST,
    outcome=OUTCOME,
)


@pytest.mark.parametrize(
    ("leave", "fence", "ttl", "settlement"),
    [
        # Just created.
        (
            SettledState.COMPLETED,
            None,
            None,
            COMPLETED._replace(operation=first_operation(TICKET)),
        ),
        # The deadline of the claim stays: no index entry moves.
        (
            SettledState.COMPLETED,
            OURS,
            None,
            COMPLETED,
        ),
        # The ttl of this one response.
        (
            SettledState.COMPLETED,
            OURS,
            60.0,
            COMPLETED._replace(expires_in=60.0),
        ),
        # Zero is also a ttl.
        (
            SettledState.COMPLETED,
            OURS,
            0.0,
            COMPLETED._replace(expires_in=0.0),
        ),
        # Starts again.
        (
            SettledState.COMPLETED,
            THEIRS,
            None,
            COMPLETED._replace(fence=OTHER, expires_in=TICKET.ttl),
        ),
        (SettledState.COMPLETED, THEIRS, 60.0, COMPLETED._replace(fence=OTHER, expires_in=60.0)),
        # released without its response; a refused request may be corrected, a failed one must
        # return unchanged (of which the next one begins anew)
        (
            SettledState.FREE,
            OURS,
            None,
            COMPLETED._replace(status=Status.FREE, digest=b"", outcome=None, new_life=True),
        ),
        (SettledState.BOUND, OURS, None, COMPLETED._replace(status=Status.FREE, outcome=None)),
        (
            SettledState.BOUND,
            THEIRS,
            None,
            COMPLETED._replace(
                status=Status.FREE, fence=OTHER, outcome=None, expires_in=TICKET.ttl
            ),
        ),
        # any request may follow, and works at the same operation
        (
            SettledState.FORGOTTEN,
            OURS,
            None,
            COMPLETED._replace(status=Status.FREE, digest=b"", outcome=None),
        ),
        (SettledState.LEASED, OURS, None, None),  # nothing is written
    ],
)
def test_settlement(
    leave: SettledState, fence: Record | None, ttl: float | None, settlement: Settlement | None
) -> None:
    """A settlement is fenced by the owner at the time of the lock, and carries this run's facts."""
    made = conclusions.settlement(
        leave, TICKET, Execute(attempt=1), fence=fence, outcome=OUTCOME, ttl=ttl
    )
    assert made == settlement


@pytest.mark.parametrize(
    ("worked", "expires_in"),
    [(0.0, None), (0.9, None), (1.0, TICKET.ttl), (TICKET.ttl, TICKET.ttl)],
)
def test_a_response_is_kept_from_when_it_is_stored(worked: float, expires_in: float | None) -> None:
    """A client that succeeded at the last moment still finds it.

    Quick work leaves the deadlines as they are.
    """
    run = Execute(attempt=1)
    facts: dict[str, Any] = {"fence": OURS, "outcome": OUTCOME, "worked": worked}
    made = conclusions.settlement(SettledState.COMPLETED, TICKET, run, ttl=None, **facts)
    own = conclusions.settlement(SettledState.COMPLETED, TICKET, run, ttl=60.0, **facts)
    assert made is not None
    assert own is not None
    assert (made.expires_in, own.expires_in) == (expires_in, 60.0)


@pytest.mark.parametrize(
    ("run", "state"),
    [
        (Execute(attempt=1), SettledState.BOUND),
        # The next call must know that an owner has crashed.
        (
            Execute(attempt=2, takeover=True),
            SettledState.LEASED,
        ),
        # Its execution resumes it again.
        (
            Execute(attempt=2, resumed=True),
            SettledState.SUSPENDED,
        ),
    ],
)
def test_abandoned(run: Execute, state: SettledState) -> None:
    """A record whose work has not begun is left as it was found."""
    assert conclusions.withdrawn(run) is state


def test_a_new_life_is_settled_as_one() -> None:
    """The attempt, the new life and its operation reach the store."""
    run = Execute(attempt=1, new_life=True)
    made = conclusions.settlement(
        SettledState.COMPLETED, TICKET, run, fence=THEIRS, outcome=OUTCOME, ttl=None
    )
    assert made is not None
    assert (made.attempt, made.new_life, made.operation) == (1, True, next_operation(FIRST))


def test_later_attempts_are_counted() -> None:
    """The attempt that ran is the attempt that is written."""
    made = conclusions.settlement(
        SettledState.BOUND, TICKET, Execute(attempt=5), fence=OURS, outcome=None, ttl=None
    )
    assert made is not None
    assert made.attempt == 5
