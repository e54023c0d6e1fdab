"""The header that says what happened to a keyed request: from the moment, the record and the
problem.
"""

from __future__ import annotations

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_idempotency import errors
from django_idempotency.conf import resolve
from django_idempotency.core.conclusions import SettledState
from django_idempotency.core.policy import Policy
from django_idempotency.core.statuses import OF_RECORD, HeaderStatus, Moment, status_of
from django_idempotency.errors import Problem
from django_idempotency.http.admission import key_to_guard
from django_idempotency.http.exchange import DEGRADED, HEADER, REPLAYED, exchange_of, note, stamp
from django_idempotency.http.problems import problem_response
from django_idempotency.http.responses import capture

from .test_problems import PROBLEMS, subclasses

#: Problem → what is said before its request has run. Of a problem that is not listed `refused`, and
#: of a subclass as of its class.
BEFORE: dict[type[Problem], str | None] = {
    # Of requests without a key.
    **dict.fromkeys((errors.KeyMissing, errors.KeyNotIssued, errors.KeyUnknown)),
    errors.KeyExpired: "expired",
    errors.InProgress: "in-progress",
    errors.OwnershipLost: "in-progress",
    errors.RequestMismatch: "mismatch",
    errors.ResponseNotStored: "not-stored",
    errors.OperationHeld: "held",
    errors.KeyTooOld: "held",
    errors.OutcomeUnknown: "unknown",
}
#: How the record was left by work that has run → what is then said, of any problem.
AFTER = {
    SettledState.COMPLETED: "created",
    SettledState.FREE: "released",
    SettledState.BOUND: "failed",
    SettledState.FORGOTTEN: "failed",
    SettledState.LEASED: "failed",
    None: "lost",
}
#: But of these: the record was completed as held; the COMMIT was not answered.
EXCEPT = {
    (errors.OperationHeld, SettledState.COMPLETED): "held",
    (errors.KeyTooOld, SettledState.COMPLETED): "held",
    (errors.OutcomeUnknown, None): "unknown",
}
#: What says that nothing ran, or that it ran elsewhere.
NOT_HERE = {"refused", "in-progress", "mismatch", "expired", "not-stored", "replayed"}


def test_every_end_of_a_record_has_a_status() -> None:
    """The exception is a durable execution's sleep, which no request sees."""
    assert set(OF_RECORD) == {*SettledState, None} - {SettledState.SUSPENDED}
    assert OF_RECORD[SettledState.COMPLETED] is HeaderStatus.CREATED


@pytest.mark.parametrize("kind", PROBLEMS)
def test_what_is_said_before_the_work(kind: type[Problem]) -> None:
    """Nothing has run, and the problem says what is in the way."""
    assert kind in subclasses(Problem)
    expected = BEFORE.get(kind, "refused")
    found = status_of(kind(), Moment.BEFORE)
    assert (None if found is None else found.value) == expected
    assert problem_response(kind(), HttpRequest()).get(HEADER) == expected


@pytest.mark.parametrize("kind", [kind for kind in PROBLEMS if kind.has_status])
@pytest.mark.parametrize("left", AFTER)
def test_what_is_said_after_the_work(kind: type[Problem], left: SettledState | None) -> None:
    """It has run, and how its record was left counts. No problem says then that nothing ran."""
    found = status_of(kind(), Moment.AFTER, OF_RECORD[left])
    assert found is not None
    assert found.value == EXCEPT.get((kind, left), AFTER[left])
    assert found.value not in NOT_HERE


@pytest.mark.parametrize("kind", [kind for kind in PROBLEMS if kind.has_status])
def test_what_is_said_during_the_work(kind: type[Problem]) -> None:
    """Its record is not settled yet; what is said when it is replaces this."""
    found = status_of(kind(), Moment.DURING)
    assert found is (HeaderStatus.UNKNOWN if kind is errors.OutcomeUnknown else HeaderStatus.LOST)


def test_a_request_that_is_sent_through_again() -> None:
    """What an earlier run of the same request has left is no word on a problem before the next
    one.
    """
    request = RequestFactory().post("/", headers={"Idempotency-Key": "order-17"})
    exchange = exchange_of(request)
    exchange.has_begun, exchange.status = True, HeaderStatus.FAILED
    assert problem_response(errors.StoreUnavailable(), request)[HEADER] == "failed"
    key_to_guard(request, Policy())
    assert problem_response(errors.StoreUnavailable(), request)[HEADER] == "refused"


def test_it_is_never_stored() -> None:
    """A replay has its own status."""
    response = HttpResponse(b"", headers={HEADER: "created", "X-Id": "1"})
    outcome = capture(response, resolve(Policy()), 100)
    assert {name for name, _ in outcome.headers} == {"Content-Type", "X-Id"}


def test_only_what_was_noted_is_sent() -> None:
    """A header that a view has copied from another service is not about this key; without a note it
    is left alone.
    """
    request = HttpRequest()
    copied = {HEADER: "created", REPLAYED: "true", DEGRADED: "true", "X-Id": "1"}
    assert HEADER not in stamp(request, HttpResponse())
    assert stamp(request, HttpResponse(headers=copied)).headers.items() >= copied.items()
    note(request, HeaderStatus.UNGUARDED)
    said = stamp(request, HttpResponse(headers=copied))
    assert (said[HEADER], said["X-Id"], REPLAYED in said, DEGRADED in said) == (
        "unguarded",
        "1",
        False,
        False,
    )
    note(request, HeaderStatus.REPLAYED)
    assert stamp(request, stamp(request, HttpResponse()))[REPLAYED] == "true"
    assert stamp(request, None) is None  # a view without a return: Django reports it
