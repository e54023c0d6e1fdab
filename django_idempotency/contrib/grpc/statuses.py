"""What a client gets for an error: a status, and trailing metadata. One table decides."""

from __future__ import annotations

import logging
from typing import Any

from grpc import StatusCode

from ... import errors

logger = logging.getLogger("django_idempotency")

#: The nearest class of an error counts. What has none here is `INTERNAL`: the server's fault.
STATUSES: dict[type[Exception], StatusCode] = {
    each: status
    for status, classes in {
        StatusCode.INVALID_ARGUMENT: (errors.KeyMissing, errors.KeyMalformed),
        StatusCode.UNAUTHENTICATED: (errors.ScopeRequired,),
        StatusCode.PERMISSION_DENIED: (errors.ReplayRefused,),
        # It was carried out.
        StatusCode.ALREADY_EXISTS: (errors.ResponseNotStored,),
        # Sent again as it is, it will never be.
        StatusCode.FAILED_PRECONDITION: (
            errors.RequestMismatch,
            errors.KeyExpired,
            errors.OperationHeld,
            errors.OperationCancelled,
        ),
        # To be sent again, with the same key.
        StatusCode.ABORTED: (errors.InProgress, errors.LostRace, errors.LeaseLost),
        StatusCode.UNAVAILABLE: (errors.StoreUnavailable, errors.OutcomeUnknown),
        StatusCode.DEADLINE_EXCEEDED: (errors.DeadlinePassed,),
    }.items()
    for each in classes
}
#: Trailing metadata: of a replay; the stable code of a problem; and when to send again (gRFC A6,
#: milliseconds).
REPLAYED = ("idempotent-replayed", "true")
PROBLEM = "idempotency-problem"
PUSHBACK = "retry-pushback-ms"


def add_trailing(context: Any, *metadata: tuple[str, str]) -> None:
    """Add to the trailing metadata of a call, of which an interceptor around may have set some."""
    context.set_trailing_metadata((*(context.trailing_metadata() or ()), *metadata))


def refused(context: Any, error: errors.IdempotencyError) -> tuple[StatusCode, str]:
    """Return what to abort with for an error, and set its trailing metadata.

    The server's fault is logged, not described.
    """
    if isinstance(error, errors.HeldForPerson):
        error = errors.OperationHeld()  # its text is for operators
    status = next(
        (STATUSES[each] for each in type(error).__mro__ if each in STATUSES), StatusCode.INTERNAL
    )
    if isinstance(error, errors.Problem):
        wait = error.retry_in
        add_trailing(
            context,
            (PROBLEM, error.code),
            *([] if wait is None else [(PUSHBACK, str(wait * 1000))]),
        )
    elif status is StatusCode.INTERNAL:
        logger.error("A guarded method was refused: %s", error, exc_info=error)
        return status, "This method cannot be guarded. It was not carried out."
    return status, error.plainly or str(error)
