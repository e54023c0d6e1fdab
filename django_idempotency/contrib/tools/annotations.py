"""What a guarded tool tells its clients of itself: MCP's `ToolAnnotations`, from what guards it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import conf
from ...http.markers import mark_of
from .decorator import TOOL, Tool


def hints(
    guarded: Callable[..., Any], *, destructive: bool = True, **more: bool
) -> dict[str, bool]:
    """Return the annotations of a tool that `@idempotent_tool()` guards, or of those behind a
    guarded view.

    `idempotentHint` is true if a call that is sent again is never carried out again: a key is
    required, or derived. Whether it destroys is for its author to say. `more` are further
    annotations. Raises `TypeError` for what is not guarded.
    """
    tool: Tool | None = getattr(guarded, TOOL, None)
    if tool is not None:
        once = tool.is_once()
    elif (policy := mark_of(guarded).policy) is not None:
        once = conf.field(policy, "required") is True
    else:
        raise TypeError(
            "hints() takes what @idempotent_tool() or @idempotent_tool_calls() has "
            f"decorated, not {guarded!r}."
        )
    return {"readOnlyHint": False, "destructiveHint": destructive, "idempotentHint": once, **more}
