"""Errors as problem documents."""

from __future__ import annotations

import json

import pytest
from django.http import HttpRequest
from django.test import override_settings

from django_idempotency import errors
from django_idempotency.core.dialects import Default, Dialect
from django_idempotency.core.standings import OperationState
from django_idempotency.errors import Problem
from django_idempotency.http.problems import problem_response
from django_idempotency.instrumentation.outcomes import OUTCOMES

PROBLEMS: dict[type[Problem], tuple[int, str]] = {
    errors.KeyMissing: (400, "key-missing"),
    errors.KeyMalformed: (400, "key-malformed"),
    errors.KeyTooShort: (400, "key-too-short"),
    errors.KeyForeign: (400, "key-foreign"),
    errors.KeyNotIssued: (400, "key-not-issued"),
    errors.KeyExpired: (412, "key-expired"),
    errors.KeyAhead: (412, "key-ahead"),
    errors.KeyUnsupported: (501, "key-unsupported"),
    errors.ScopeRequired: (400, "scope-required"),
    errors.RequestTooLarge: (413, "request-too-large"),
    errors.BodyIncomplete: (400, "body-incomplete"),
    errors.RequestMismatch: (422, "request-mismatch"),
    errors.InProgress: (409, "in-progress"),
    errors.TooManyKeys: (429, "too-many-keys"),
    errors.PossibleDuplicate: (409, "possible-duplicate"),
    errors.ResponseNotStored: (409, "response-not-stored"),
    errors.OperationHeld: (409, "operation-held"),
    errors.KeyTooOld: (409, "key-too-old"),
    errors.ReplayRefused: (403, "replay-refused"),
    errors.RecordUnreadable: (500, "record-unreadable"),
    errors.ReplayUnchecked: (403, "replay-unchecked"),
    errors.OperationCancelled: (409, "operation-cancelled"),
    errors.OperationUndone: (409, "operation-undone"),
    errors.KeyUnknown: (404, "key-unknown"),
    errors.StoreUnavailable: (503, "store-unavailable"),
    errors.StoreRefused: (503, "store-unavailable"),
    errors.TransactionLost: (503, "transaction-lost"),
    errors.WritesRolledBack: (500, "writes-rolled-back"),
    errors.TransactionLeftOpen: (500, "writes-rolled-back"),
    errors.OperationUnknown: (503, "store-unavailable"),
    errors.OutcomeUnknown: (503, "outcome-unknown"),
    errors.OwnershipLost: (409, "in-progress"),
    errors.LostRace: (503, "try-again"),
}


def subclasses(cls: type[Problem]) -> set[type[Problem]]:
    return {each for child in cls.__subclasses__() for each in ({child} | subclasses(child))}


def test_every_problem_is_in_the_table() -> None:
    """A code is a promise to clients: a new one is added here."""
    assert {
        problem for problem in subclasses(Problem) if problem.__module__ == errors.__name__
    } == set(PROBLEMS)


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_problem_says_everything_about_itself(kind: type[Problem]) -> None:
    """What its class says is known where it is used: to the profile, the header, the document, the
    metrics and the page.
    """
    assert (kind.status, kind.code) == PROBLEMS[kind]
    assert kind.title
    assert (kind.__doc__ or "").strip()
    assert Default().status_of(kind) == Default().status_of(kind()) == kind.status
    assert kind.has_status in (True, False)
    assert kind.operation_state in {None, *(state.value for state in OperationState)}
    assert kind.outcome in OUTCOMES
    assert kind.nothing_done in (True, False)


def test_a_code_says_one_thing() -> None:
    """A client tells problems apart by their codes, so two with one code say the same."""
    said: dict[str, set[tuple[object, ...]]] = {}
    for kind in PROBLEMS:
        about = (
            kind.status,
            kind.has_status,
            kind.operation_state,
            kind.outcome,
        )
        said.setdefault(kind.code, set()).add(
            (*about, kind.nothing_done, kind.title, kind.retry_after)
        )
    assert {code: found for code, found in said.items() if len(found) > 1} == {}


#: Code → the outcome that metrics count. Any other code is `refused`.
COUNTED = {
    "in-progress": "running",
    "request-mismatch": "mismatch",
    "key-missing": "missing",
    "key-malformed": "invalid",
    "key-too-short": "invalid",
    "key-ahead": "invalid",
    "key-unsupported": "invalid",
    "key-expired": "late",
    "operation-held": "held",
    "key-too-old": "held",
    "too-many-keys": "flooded",
    "possible-duplicate": "suspected",
    "response-not-stored": "not_stored",
    "record-unreadable": "unreadable",
    "store-unavailable": "store_error",
    "try-again": "contended",
}


def test_what_metrics_count() -> None:
    """Alerts of projects name these words."""
    assert {kind.code: kind.outcome for kind in PROBLEMS if kind.outcome != "refused"} == COUNTED


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_dialect_names_the_status_of_some(kind: type[Problem]) -> None:
    """That of a class counts for its subclasses; the others have their own in each dialect."""

    class Ours(Dialect):
        statuses = {errors.KeyMalformed: 418, errors.InProgress: 419}  # noqa: RUF012

    expected = kind.status
    if issubclass(kind, errors.KeyMalformed):
        expected = 418
    if issubclass(kind, errors.InProgress):
        expected = 419
    assert Ours().status_of(kind()) == Ours().status_of(kind) == expected


@pytest.mark.parametrize(
    ("kind", "expected"), PROBLEMS.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_a_problem_is_answered_as_rfc_9457_asks(
    kind: type[Problem], expected: tuple[int, str]
) -> None:
    """A problem has type, title, status, detail and a stable code.

    The type names the problem and links to no page.
    """
    status, code = expected
    response = problem_response(kind(), HttpRequest())
    document = json.loads(response.content)
    assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json")
    assert set(document) == {"type", "title", "status", "detail", "code", "retry"}
    assert document["retry"] == kind.retry
    assert kind.retry in errors.RETRIES
    # What helps is the same again, later.
    assert (kind.retry == "same-key") >= (kind.retry_after is not None)
    assert kind.retry != "new-key" or kind.nothing_done
    assert (document["status"], document["code"]) == (status, code)
    assert document["type"] == f"urn:django-idempotency:problem:{code}"
    assert "Link" not in response
    assert response["Cache-Control"] == "no-store"
    assert document["title"]
    assert document["detail"].endswith(".")
    assert "\n" not in document["detail"]


@pytest.mark.parametrize(
    "kind", [kind for kind, (status, _) in PROBLEMS.items() if status in (409, 503)]
)
def test_a_problem_that_may_be_retried_has_retry_after(kind: type[Problem]) -> None:
    """Retry-After is there unless a retry cannot help."""
    final = (
        errors.PossibleDuplicate,
        errors.ResponseNotStored,
        errors.OperationHeld,
        errors.KeyTooOld,
        errors.OperationCancelled,
        errors.OperationUndone,
    )
    expected = None if kind in final else "1"
    assert problem_response(kind(), HttpRequest()).get("Retry-After") == expected


def test_a_problem_carries_its_own_headers_and_members() -> None:
    """A more precise value wins over the default."""
    problem = errors.InProgress(headers={"Retry-After": "7"}, extensions={"original_status": 201})
    response = problem_response(problem, HttpRequest())
    assert response["Retry-After"] == "7"
    assert json.loads(response.content)["original_status"] == 201


@pytest.mark.parametrize("kind", PROBLEMS)
@override_settings(IDEMPOTENCY={"PROBLEM_DOCS": "https://api.example.com/errors"})
def test_a_project_points_to_its_own_page(kind: type[Problem]) -> None:
    """With PROBLEM_DOCS the type is a link into that page, and the Link header says what it is."""
    response = problem_response(kind(), HttpRequest())
    section = f"https://api.example.com/errors#{kind.code}"
    assert json.loads(response.content)["type"] == section
    assert response["Link"] == f'<{section}>; rel="describedby"'
