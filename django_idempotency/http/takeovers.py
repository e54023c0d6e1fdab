"""`on_takeover` of a view: what the project says about a request whose earlier owner crashed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core.concurrency import in_thread
from ..core.policy import Resolved
from ..core.records import Outcome, OutcomeKind, shortened
from ..engine.operation import Operation
from ..errors import ConfigurationError
from ..runtime.handle import HELD_FOR
from ..runtime.takeovers import Deciding, Decision, HoldForReview, RunAgain, UseResult
from .responses import capture, render

logger = logging.getLogger("django_idempotency")

#: Completes a response as the view would, before it is rendered.
Finish = Callable[[Any], HttpResponseBase]


class Takeover(Deciding):
    """The argument of a policy's `on_takeover`: an earlier request crashed and may have done part of the work.

    The hook returns `run()`, `found(response)` or `hold()`. An exception that it raises goes to the client as one of the
    view does, and decides nothing: the next request after the lease asks again.
    """

    def __init__(self, operation: Operation, request: HttpRequest) -> None:
        super().__init__(operation)
        #: Django's request, which is a retry of the one that crashed. The view has not seen it.
        self.request = request
        assert operation.record is not None, "it was taken over"
        self.record = operation.record

    def found(self, result: Any) -> Decision:
        """Store this response and return it, marked as a replay; the view does not run.

        Raises `TypeError` for what is not a response, and `ValueError` for a status of 500 or more, which says that the
        outcome is not known.
        """
        if not isinstance(result, HttpResponseBase):
            raise TypeError(f"takeover.found() takes a response, such as JsonResponse(…), not {type(result).__name__}.")
        if result.status_code >= 500:
            raise ValueError(
                f"takeover.found() takes a response below 500, not {result.status_code}. If the outcome is unknown, "
                "return takeover.hold()."
            )
        return super().found(result)


class TakeoverEnd(NamedTuple):
    """How a takeover ends whose view does not run."""

    outcome: Outcome
    ttl: float | None
    #: The response that was found; `None`: a person must decide.
    response: HttpResponseBase | None


def ask(hook: Callable[[Takeover], Any], takeover: Takeover) -> Any:
    """Return what `on_takeover` returns."""
    return async_to_sync(hook)(takeover) if iscoroutinefunction(hook) else hook(takeover)


async def aask(hook: Callable[[Takeover], Any], takeover: Takeover) -> Any:
    """See ask(). A sync hook may query a database, which an event loop refuses."""
    if iscoroutinefunction(hook):
        return await hook(takeover)
    return await in_thread(hook, takeover, close=connections.close_all)


def end_of(
    decision: Any, takeover: Takeover, policy: Resolved, *, finish: Finish | None, limit: int
) -> TakeoverEnd | None:
    """Return how a takeover ends; `None`: the view runs. Raises what finishing the response raises."""
    match decision:
        case RunAgain():
            return None
        case UseResult(result=response):
            if finish is not None:
                response = finish(response)
            render(response)
            return TakeoverEnd(capture(response, policy, limit), takeover.seconds, response)
        case HoldForReview():
            held = takeover.record
            logger.error(
                "Held: %s %s under %s waits for a person to release its record.",
                held.method,
                held.path,
                shortened(held.key),
            )
            return TakeoverEnd(OutcomeKind.HELD.outcome(), HELD_FOR, None)
    raise ConfigurationError(f"on_takeover returned {decision!r}. Return takeover.run(), .found(response) or .hold().")
