"""Tools that agents call: a call that is repeated is carried out once."""

from .annotations import hints
from .calls import idempotent_tool_calls
from .decorator import idempotent_tool
from .sdk import authenticated, session

__all__ = ["authenticated", "hints", "idempotent_tool", "idempotent_tool_calls", "session"]
