"""What `on_takeover` decides about a call of a guarded function, and how the call ends by that."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from asgiref.sync import async_to_sync

from ..core.conclusions import Ending, WorkResult
from ..core.records import OutcomeKind, shortened
from ..engine.operation import Operation
from ..errors import ConfigurationError, HeldForPerson
from ..runtime.decisions import Deciding, HoldForReview, RunAgain, UseResult
from ..runtime.handle import HELD_FOR
from .call import FunctionCall
from .current import CurrentOperation
from .endings import CallEnd, end_of_error, end_of_result, leaving

logger = logging.getLogger("django_idempotency")


class Takeover(Deciding, CurrentOperation):
    """The argument of `on_takeover`: an earlier owner crashed and may have done part of the work.

    The hook returns `run()`, `found(result)` or `hold()`, after which this call and retries raise
    `HeldForPerson`. An exception that it raises goes to the caller and decides nothing: the next
    call after the lease asks again. An exception listed in `keep_exceptions` is stored as if the
    call had raised it.
    """

    def __init__(
        self, operation: Operation, payload: Any, outer: CurrentOperation | None = None
    ) -> None:
        super().__init__(operation, outer)
        #: The source of the key: the arguments by name, or the one that `data_keyword_argument`
        #: names.
        self.payload = payload
        assert operation.record is not None
        self.record = operation.record


def decide(call: FunctionCall) -> CallEnd | None:
    """Ask `on_takeover`. `None`: the function runs."""
    takeover = Takeover(call.operation, call.payload, call.outer)
    call.current = takeover
    ask: Any = call.terms.on_takeover
    try:
        with takeover:
            decision = ask(takeover)
            if inspect.isawaitable(decision):
                decision = async_to_sync(_awaited)(decision)
            return _decided(call, decision)
    except BaseException as error:  # noqa: BLE001 - raised again
        call.settle(_undecided(call, error))
        raise leaving(call, error)  # noqa: B904 - its cause is its own


async def _awaited(decision: Any) -> Any:
    return await decision


def _decided(call: FunctionCall, decision: Any) -> CallEnd | None:
    """Return the end of a call that `on_takeover` has decided; `None`: the call runs."""
    match decision:
        case RunAgain():
            return None
        case UseResult(result=result):
            return end_of_result(call, result)
        case HoldForReview():
            key = shortened(call.operation.ticket.key)
            logger.error(
                "Held: %s under %s waits for a person to release its record.", call.terms.name, key
            )
            held = call.naming(HeldForPerson())
            ending = Ending(WorkResult.KEPT, OutcomeKind.HELD.outcome(), HELD_FOR)
            return CallEnd(ending, raised=held)
    raise ConfigurationError(
        f"on_takeover of {call.terms.name} returned {decision!r}. Return takeover.run(), "
        ".found(result) or .hold()."
    )


def _undecided(call: FunctionCall, error: BaseException) -> CallEnd:
    """Return the end of an undecided takeover: the record stays as it is, so that the next call
    asks again.
    """
    end = end_of_error(call, error)
    return end if end.ending.work_result is WorkResult.KEPT else CallEnd(Ending(WorkResult.CUT))
