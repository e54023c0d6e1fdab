"""`idempotent_function` and its implementation."""

from ..engine.deadlines import deadline, remaining
from .current import CurrentOperation, current_operation
from .decorator import idempotent_function
from .handle import Handle, Known
from .names import derive_key

__all__ = [
    "CurrentOperation",
    "Handle",
    "Known",
    "current_operation",
    "deadline",
    "derive_key",
    "idempotent_function",
    "remaining",
]
