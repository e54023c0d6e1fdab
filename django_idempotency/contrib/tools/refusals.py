"""What the caller of a tool gets for a problem: a result that says what it does next, by the
problem's own `retry`.
"""

from __future__ import annotations

import json
from typing import Any

from ...errors import (
    HeldForPerson,
    IdempotencyError,
    KeyMissing,
    LeaseLost,
    OperationHeld,
    OutcomeUnknown,
    Problem,
)


def problem_of(error: IdempotencyError) -> Problem | None:
    """Return the problem that a tool's caller gets for an error of a guarded call; `None`: it is
    the server's own fault.
    """
    match error:
        case KeyMissing():
            return KeyMissing()  # that of a function names the function
        case Problem():
            return error
        case HeldForPerson():
            return OperationHeld()
        case LeaseLost():
            return OutcomeUnknown()
    return None


def refusal(problem: Problem) -> dict[str, Any]:
    """Return the result of a call that met a problem, as MCP's `CallToolResult` has it in JSON: for
    a program, and as text.
    """
    said: dict[str, Any] = {"code": problem.code, "retry": problem.retry}
    if problem.retry_in is not None:
        said["retry_after"] = problem.retry_in
    if location := problem.headers.get("Location"):
        said["location"] = location
    said["detail"] = problem.detail
    return {
        "resultType": "complete",
        "content": [{"type": "text", "text": json.dumps(said)}],
        "structuredContent": said,
        "isError": True,
    }
