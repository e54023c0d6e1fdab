"""The header that says what happened to a keyed request: from the record, or from a problem."""

from __future__ import annotations

import pytest
from django.http import HttpRequest, HttpResponse

from django_idempotency import errors
from django_idempotency.conf import resolve
from django_idempotency.core.conclusions import SettledState
from django_idempotency.core.policy import Policy
from django_idempotency.errors import Problem
from django_idempotency.http.exchange import DEGRADED, HEADER, OF_RECORD, REPLAYED, HeaderStatus, note, stamp
from django_idempotency.http.problems import problem_response
from django_idempotency.http.responses import capture

from .test_problems import PROBLEMS, subclasses

#: Problem → what its response says. A problem that is not listed changed nothing: `refused`.
SAID: dict[type[Problem], str | None] = {
    **dict.fromkeys((errors.KeyMissing, errors.KeyUnknown)),  # of requests without a key
    errors.KeyExpired: "expired",
    errors.KeyNotIssued: None,
    errors.KeyUnknown: None,  # nor are these
    errors.InProgress: "in-progress",
    errors.OwnershipLost: "in-progress",
    errors.RequestMismatch: "mismatch",
    errors.ResponseNotStored: "not-stored",
    errors.OperationHeld: "held",
    errors.OutcomeUnknown: "unknown",
}


def test_every_end_of_a_record_has_a_status() -> None:
    """The exception is a durable execution's sleep, which no request sees."""
    assert set(OF_RECORD) == {*SettledState, None} - {SettledState.SUSPENDED}
    assert OF_RECORD[SettledState.COMPLETED] is HeaderStatus.CREATED


@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_problem_has_a_status(kind: type[Problem]) -> None:
    """The response has one of a closed set of statuses."""
    assert kind in subclasses(Problem)
    assert problem_response(kind(), HttpRequest()).get(HEADER) == SAID.get(kind, "refused")


def test_it_is_never_stored() -> None:
    """A replay has its own status."""
    response = HttpResponse(b"", headers={HEADER: "created", "X-Id": "1"})
    outcome = capture(response, resolve(Policy()), 100)
    assert {name for name, _ in outcome.headers} == {"Content-Type", "X-Id"}


def test_only_what_was_noted_is_sent() -> None:
    """A header that a view has copied from another service is not about this key; without a note it is left alone."""
    request = HttpRequest()
    copied = {HEADER: "created", REPLAYED: "true", DEGRADED: "true", "X-Id": "1"}
    assert HEADER not in stamp(request, HttpResponse())
    assert stamp(request, HttpResponse(headers=copied)).headers.items() >= copied.items()
    note(request, HeaderStatus.UNGUARDED)
    said = stamp(request, HttpResponse(headers=copied))
    assert (said[HEADER], said["X-Id"], REPLAYED in said, DEGRADED in said) == ("unguarded", "1", False, False)
    note(request, HeaderStatus.REPLAYED)
    assert stamp(request, stamp(request, HttpResponse()))[REPLAYED] == "true"
    assert stamp(request, None) is None  # a view without a return: Django reports it
