"""A provider's `LOOKUP`: the project finds out what became of a call, before that is sent again.

What it does not find may still be on its way. Within the provider's `LIFETIME` the key makes a
second request harmless; past it nothing is sent, whatever `LOOKUP` says.
"""

from __future__ import annotations

import json
import logging
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.module_loading import import_string

from ...api import CURRENT_STEP
from ...errors import ConfigurationError
from ...runtime.decisions import Decision, HoldForReview, Question, RunAgain, UseResult
from .ledger import CALLS, as_seen, hold
from .messages import Answer, pack_answer
from .models import OutgoingCall
from .names import naming
from .providers import Provider, provider
from .rules import CallState

logger = logging.getLogger("django_idempotency")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCall(Question):
    """The argument of `LOOKUP`: a call was found sent and not ended.

    Return `run()` if it was not found, or nobody knows: it is sent again with its key, and past
    `LIFETIME` a person decides. Return `found(result)` if it was carried out, or `hold()` if it
    must not be sent.
    """

    provider: str
    name: str
    key: str
    method: str
    #: Without its query.
    url: str
    first_sent: datetime

    def found(
        self, result: Any, *, status: int = 200, content_type: str = "application/json"
    ) -> Decision:
        """It was carried out, and this is its response: `result` is a body, or a value for JSON.

        Raises `ValueError` for a status that is not a success, and `TypeError` for what JSON cannot
        hold.
        """
        if not 200 <= status < 300:
            raise ValueError(
                f"found(status={status}): only a success was carried out. Return "
                "call.run() otherwise."
            )
        body = result if isinstance(result, bytes) else json.dumps(result).encode()
        return UseResult(
            Answer(status=status, headers=(("Content-Type", content_type),), body=body)
        )


def look_up(row: OutgoingCall, called: Provider, using: str) -> CallState | None:
    """Ask about a call whose outcome is unknown.

    Return the state that was written; `None`: none was.

    What `LOOKUP` raises is logged, and decides nothing.
    """
    if called.lookup is None:
        return None
    try:
        decision = copy_context().run(_ask, called.lookup, row)
        values = _values(row, decision, called)
    except Exception:
        logger.exception("The LOOKUP of %s raised, so it has decided nothing.", called.alias)
        return None
    if values is None:
        return CallState.HELD if isinstance(decision, HoldForReview) and hold(row, using) else None
    if not as_seen(row, using).update(**values):
        return None
    CALLS.record(provider=row.provider, outcome=CallState.SUCCEEDED.value)
    return CallState.SUCCEEDED


def end_forgotten(row: OutgoingCall, using: str) -> CallState | None:
    """Hold a call that its provider may have forgotten, unless it is found.

    Return its state; `None`: it has moved on.
    """
    return look_up(row, provider(row.provider), using) or (
        CallState.HELD if hold(row, using) else None
    )


def _ask(path: str, row: OutgoingCall) -> Any:
    """Call the function.

    What it sends is another call: it has neither the name nor the step of this one.
    """
    facts = ("provider", "name", "key", "method", "url", "first_sent")
    CURRENT_STEP.set(None)
    with naming(None):
        return import_string(path)(LostCall(**{fact: getattr(row, fact) for fact in facts}))


def _values(row: OutgoingCall, decision: Any, called: Provider) -> dict[str, Any] | None:
    match decision:
        case RunAgain() | HoldForReview():
            return None
        case UseResult(result=Answer() as answer):
            fits = len(answer.body) <= called.max_body
            return {
                "state": CallState.SUCCEEDED.value,
                "response_status": answer.status,
                "response": pack_answer(row.pk, answer) if fits else None,
                "request": None,
            }
    raise ConfigurationError(
        f"It returned {decision!r}. Return call.run(), .found(result) or .hold()."
    )
