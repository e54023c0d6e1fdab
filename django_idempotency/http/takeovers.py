"""Asks `OnTakeover` about a request whose owner was abandoned, and ends it as that decides."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core.conclusions import Ending, SettledState, WorkResult
from ..core.records import MISSING, Outcome, OutcomeKind, shortened
from ..core.rules import original_request
from ..core.statuses import HeaderStatus
from ..engine.operation import Operation
from ..errors import ConfigurationError, OperationHeld
from ..instrumentation.outcomes import TAKEN_OVER
from ..runtime.decisions import Deciding, Decision, HoldForReview, RunAgain, UseResult
from ..runtime.handle import HELD_FOR
from .call import Call
from .exchange import set_headers
from .responses import FINAL, capture, rebuild, render

logger = logging.getLogger("django_idempotency")


class Takeover(Deciding):
    """The argument of the function of `OnTakeover`: an earlier request crashed and may have done
    part of the work.

    The hook returns `run()`, `found(response)` or `hold()`. An exception that it raises goes to the
    client as one of the view does, and decides nothing: the next request after the lease asks
    again.
    """

    def __init__(self, operation: Operation, request: HttpRequest) -> None:
        super().__init__(operation)
        #: Django's request, which is a retry of the one that crashed. The view has not seen it.
        self.request = request
        assert operation.record is not None, "it was taken over"
        self.record = operation.record

    def found(self, result: Any) -> Decision:
        """Store this response and return it, marked as a replay; the view does not run.

        Raises `TypeError` for what is not a response, and `ValueError` for a status of 500 or more,
        which says that the outcome is not known.
        """
        if not isinstance(result, HttpResponseBase):
            raise TypeError(
                "takeover.found() takes a response, such as JsonResponse(…), not "
                f"{type(result).__name__}."
            )
        if result.status_code >= 500:
            raise ValueError(
                f"takeover.found() takes a response below 500, not {result.status_code}. "
                "If the outcome is unknown, "
                "return takeover.hold()."
            )
        return super().found(result)


class Found(NamedTuple):
    """How a takeover ends whose view does not run."""

    outcome: Outcome
    ttl: float | None
    #: The response that was found; `None`: a person must decide.
    response: HttpResponseBase | None


def decide(call: Call) -> HttpResponseBase | None:
    """Ask `OnTakeover` about a request that has just taken its record over.

    Return what it gets; `None`: its view runs.

    If the hook raises, the record stays as it is, and is taken over again. Raises `OperationHeld`
    or `ReplayRefused`.
    """
    takeover = Takeover(call.operation, call.request)
    try:
        found = _found(call, _asked(takeover, call.terms.on_takeover), takeover)
    except BaseException:
        call.abandon()
        raise
    if found is None:
        return None
    ending = Ending(WorkResult.KEPT, found.outcome, found.ttl, succeeded=True)
    call.operation.settle(ending)
    return _conclude(call, found)


def _asked(takeover: Takeover, hook: Any) -> Any:
    """Return what the project's function returns."""
    return async_to_sync(hook)(takeover) if iscoroutinefunction(hook) else hook(takeover)


def _found(call: Call, decision: Any, takeover: Takeover) -> Found | None:
    """Return how a takeover ends; `None`: the view runs.

    Raises what finishing the response raises.
    """
    match decision:
        case RunAgain():
            return None
        case UseResult(result=response):
            if call.finish is not None:
                response = call.finish(response)
            render(response)
            return Found(
                capture(response, call.terms, call.plan.max_body), takeover.seconds, response
            )
        case HoldForReview():
            held = takeover.record
            said = "Held: %s %s under %s waits for a person to release its record."
            logger.error(said, held.method, held.path, shortened(held.key))
            return Found(OutcomeKind.HELD.outcome(), HELD_FOR, None)
    raise ConfigurationError(
        f"OnTakeover: the function returned {decision!r}. Return takeover.run(), .found(response) "
        "or .hold()."
    )


def _conclude(call: Call, found: Found) -> HttpResponseBase:
    """Return the found response, as a later replay would return it.

    Raises `OperationHeld` or `ReplayRefused`.
    """
    response = found.response
    if response is None:
        raise OperationHeld(headers=FINAL)
    call.authorize(found.outcome)
    call.count(TAKEN_OVER)
    status = HeaderStatus.REPLAYED
    original = original_request(call.operation.ticket)
    if call.operation.left_as is not SettledState.COMPLETED:
        status = HeaderStatus.LOST
    elif found.outcome.body is not MISSING:
        response = rebuild(found.outcome, spoken=call.spoken, original=original)
    call.exchange.status = status
    call.exchange.original = original
    set_headers(status, response.headers, call.spoken, response.status_code, original=original)
    return response
