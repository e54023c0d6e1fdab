"""Whether a GraphQL response is a success: its status is 200 either way.

A result with `errors` is a refusal, like a 403, unless part of the work was done: a retry under a free key would repeat
that part.
"""

from __future__ import annotations

import json
from typing import Any

from .operations import Asked


def refusal(content: bytes, operations: list[Asked]) -> bool | None:
    """Was nothing done? `False`: something was, despite errors. `None`: there are no errors."""
    if b'"errors"' not in content:
        return None
    try:
        found = json.loads(content)
    except ValueError:
        return None
    results = found if isinstance(found, list) else [found]
    if not any(isinstance(result, dict) and result.get("errors") for result in results):
        return None
    if len(results) != len(operations):
        return len(results) == 1  # the view has refused a batch as a whole
    pairs = zip(results, operations, strict=True)
    return not any(operation.changes and _has_done(result, operation) for result, operation in pairs)


def _has_done(result: dict[str, Any], operation: Asked) -> bool:
    """Has a mutation done something? Its root fields run one after another, and each may fail on its own."""
    errors, data = result.get("errors"), result.get("data")
    if not errors:
        return True
    paths = [path for error in errors if isinstance(error, dict) and (path := error.get("path"))]
    if any(len(path) > 1 for path in paths):
        return True  # a field of what the mutation returned has failed, so the mutation has not
    if data is None:  # nothing was executed, or a non-null root field failed, perhaps the only one
        return bool(paths) and operation.several
    failed = {path[0] for path in paths}
    return any(value is not None or name not in failed for name, value in data.items())
