"""Which status each of the package's errors is, and what a client is told with it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

pytest.importorskip("grpc")

from grpc import StatusCode

from django_idempotency import errors
from django_idempotency.contrib.grpc.statuses import refused

#: Every class, so that a new one has to be thought of.
STATUSES: dict[type[errors.IdempotencyError], StatusCode] = {
    # The call is wrong.
    errors.KeyMissing: StatusCode.INVALID_ARGUMENT,
    errors.KeyMalformed: StatusCode.INVALID_ARGUMENT,
    errors.KeyTooShort: StatusCode.INVALID_ARGUMENT,
    errors.KeyForeign: StatusCode.INVALID_ARGUMENT,
    errors.ScopeRequired: StatusCode.UNAUTHENTICATED,
    errors.ReplayRefused: StatusCode.PERMISSION_DENIED,
    errors.ReplayUnchecked: StatusCode.PERMISSION_DENIED,
    # It was carried out, and its response is not there.
    errors.ResponseNotStored: StatusCode.ALREADY_EXISTS,
    # No retry helps.
    errors.RequestMismatch: StatusCode.FAILED_PRECONDITION,
    errors.KeyExpired: StatusCode.FAILED_PRECONDITION,
    errors.OperationHeld: StatusCode.FAILED_PRECONDITION,
    errors.KeyTooOld: StatusCode.FAILED_PRECONDITION,
    errors.HeldForPerson: StatusCode.FAILED_PRECONDITION,
    errors.CallHeld: StatusCode.FAILED_PRECONDITION,
    errors.OperationCancelled: StatusCode.FAILED_PRECONDITION,
    errors.OperationUndone: StatusCode.FAILED_PRECONDITION,
    # A retry with the same key helps.
    errors.InProgress: StatusCode.ABORTED,
    errors.LostRace: StatusCode.ABORTED,
    errors.LeaseLost: StatusCode.ABORTED,
    errors.OwnershipLost: StatusCode.ABORTED,
    errors.StoreUnavailable: StatusCode.UNAVAILABLE,
    errors.StoreRefused: StatusCode.UNAVAILABLE,
    errors.TransactionLost: StatusCode.UNAVAILABLE,
    errors.OperationUnknown: StatusCode.UNAVAILABLE,
    errors.OutcomeUnknown: StatusCode.UNAVAILABLE,
    errors.DeadlinePassed: StatusCode.DEADLINE_EXCEEDED,
    # The server's fault; or no method can meet it.
    **dict.fromkeys(
        (
            *(errors.IdempotencyError, errors.Problem, errors.RecordUnreadable),
            *(
                errors.KeyNotIssued,
                errors.KeyAhead,
                errors.KeyUnsupported,
                errors.KeyUnknown,
                errors.RequestTooLarge,
            ),
            *(errors.BodyIncomplete, errors.TooManyKeys, errors.PossibleDuplicate),
            *(errors.WritesRolledBack, errors.TransactionLeftOpen),
            *(errors.UnhashablePayload, errors.NotSelectable),
            *(
                errors.CallChanged,
                errors.CallResponseNotStored,
                errors.BatchFailed,
                errors.BrokerUnavailable,
            ),
            *(
                errors.ConfigurationError,
                errors.DurableInsideGuard,
                errors.CalledItself,
                errors.LeaseInTransaction,
            ),
            *(
                errors.ImplicitCommit,
                errors.StepsChanged,
                errors.StepResultNotStored,
                errors.StepsNotUndone,
            ),
            *(
                errors.SecretUnknown,
                errors.CallInTransaction,
                errors.CallWithoutName,
                errors.StepNamesOneCall,
            ),
            *(errors.StreamedRequest, errors.OutsideTransaction, errors.AppendOnly),
        ),
        StatusCode.INTERNAL,
    ),
}


class Context:
    """Remembers the trailing metadata."""

    def __init__(self) -> None:
        self.trailing: tuple[tuple[str, str], ...] = (("trace", "17"),)

    def trailing_metadata(self) -> Any:
        return self.trailing

    def set_trailing_metadata(self, metadata: Any) -> None:
        self.trailing = metadata


def made(error: type[errors.IdempotencyError]) -> errors.IdempotencyError:
    if error is errors.Problem:  # the others name what they are
        error = type("New", (errors.Problem,), {"code": "new", "status": 400, "title": "New"})
    return error()


def test_each_error_is_here() -> None:
    """None is forgotten."""
    found = [each for _, each in inspect.getmembers(errors, inspect.isclass)]
    assert {each for each in found if issubclass(each, errors.IdempotencyError)} == STATUSES.keys()


@pytest.mark.parametrize("error", STATUSES, ids=lambda error: error.__name__)
def test_a_status(error: type[errors.IdempotencyError], caplog: pytest.LogCaptureFixture) -> None:
    """A client gets a status, the stable code of a problem, and when to come back; what is set
    before stays.
    """
    context, raised = Context(), made(error)
    status, details = refused(context, raised)
    assert status is STATUSES[error]
    trailing = dict(context.trailing)
    assert trailing.pop("trace") == "17"
    told = errors.OperationHeld() if isinstance(raised, errors.HeldForPerson) else raised
    if isinstance(told, errors.Problem):
        wait = {} if told.retry_in is None else {"retry-pushback-ms": str(told.retry_in * 1000)}
        assert trailing == {"idempotency-problem": told.code, **wait}
    else:
        assert trailing == {}
    is_ours = status is StatusCode.INTERNAL and not isinstance(told, errors.Problem)
    assert (details == str(told), bool(caplog.records)) == (not is_ours, is_ours)


def test_only_what_may_be_sent_again_is_asked_for() -> None:
    """A client that honours a pushback sends the same again: never what cannot succeed."""
    again = {StatusCode.ABORTED, StatusCode.UNAVAILABLE, StatusCode.INTERNAL}
    asked = {error for error in STATUSES if (getattr(made(error), "retry_in", None)) is not None}
    assert errors.InProgress in asked
    assert {STATUSES[error] for error in asked} <= again
