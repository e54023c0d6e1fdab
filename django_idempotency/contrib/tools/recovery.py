"""What the caller of a tool does about a problem: one word for each code, and the result that says so.

An agent branches on the word, so a word never changes for a code. A code that is not in the table may mean that something was
done.
"""

from __future__ import annotations

import json
from typing import Any

from ...errors import HeldForPerson, IdempotencyError, KeyMissing, LostRace, OperationHeld, OutcomeUnknown, Problem
from ...http.error_bodies import detail

#: The same call again, with the same key.
RETRY = "retry"
#: This call did nothing. An operation that has not been asked for yet is sent with a new key.
NEW_KEY = "new-key"
#: The effect may be there. Look it up before any further call.
LOOK_FIRST = "look-first"
#: Neither with this key nor with another one: somebody must act first.
NEVER = "never"

#: Code of a problem → what its caller does.
RECOVERY = {
    "already-created": LOOK_FIRST,
    "in-progress": RETRY,
    "key-ahead": NEW_KEY,
    "key-expired": LOOK_FIRST,
    "key-foreign": NEW_KEY,
    "key-malformed": NEW_KEY,
    "key-missing": NEW_KEY,
    "key-not-issued": NEVER,
    "key-too-old": NEVER,  # a person finds out how far it came
    "key-too-short": NEW_KEY,
    "key-unknown": LOOK_FIRST,
    "key-unsupported": NEVER,
    "operation-cancelled": LOOK_FIRST,
    "operation-held": NEVER,  # the same
    "operation-undone": NEW_KEY,
    "outcome-unknown": RETRY,
    "possible-duplicate": LOOK_FIRST,
    "record-unreadable": LOOK_FIRST,
    "replay-refused": NEVER,
    "replay-unchecked": LOOK_FIRST,
    "request-mismatch": NEW_KEY,
    "request-too-large": NEVER,
    "response-not-stored": LOOK_FIRST,
    "scope-required": NEVER,
    "store-unavailable": RETRY,
    "too-many-keys": RETRY,
    "transaction-lost": RETRY,
}


def recovery_of(code: str) -> str:
    """Return the word for a problem's code."""
    return RECOVERY.get(code, LOOK_FIRST)


def problem_of(error: IdempotencyError) -> Problem | None:
    """Return the problem that a tool's caller gets for an error of a guarded call; `None`: it is the server's own fault."""
    match error:
        case KeyMissing():
            return KeyMissing()  # that of a function names the function
        case Problem():
            return error
        case HeldForPerson():
            return OperationHeld()
        case LostRace():
            return OutcomeUnknown()
    return None


def refusal(problem: Problem) -> dict[str, Any]:
    """Return the result of a call that met a problem, as MCP's `CallToolResult` has it in JSON: for a program, and as text."""
    said: dict[str, Any] = {"code": problem.code, "recovery": recovery_of(problem.code)}
    if problem.retry_in is not None:
        said["retry_after"] = problem.retry_in
    if location := problem.headers.get("Location"):
        said["location"] = location
    said["detail"] = detail(problem).replace("Retry-After", "retry_after")
    return {
        "resultType": "complete",
        "content": [{"type": "text", "text": json.dumps(said)}],
        "structuredContent": said,
        "isError": True,
    }
