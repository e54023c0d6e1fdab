"""Idempotency for Django: safe retries of requests, functions and messages.

Importing this loads nothing: a name is imported when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.policy import Policy
    from .decorators import idempotency_exempt, idempotent
    from .engine.options import (
        BufferedStreams,
        LongestRun,
        OnReplay,
        OnTakeover,
        StatusOnly,
        Tombstones,
    )
    from .functions import (
        current_operation,
        deadline,
        derive_key,
        idempotent_function,
        remaining,
    )
    from .scopes import realm

__all__ = [
    "BufferedStreams",
    "LongestRun",
    "OnReplay",
    "OnTakeover",
    "Policy",
    "StatusOnly",
    "Tombstones",
    "current_operation",
    "deadline",
    "derive_key",
    "idempotency_exempt",
    "idempotent",
    "idempotent_function",
    "realm",
    "remaining",
]

_MODULES = {
    "Policy": ".core.policy",
    **dict.fromkeys(("idempotency_exempt", "idempotent"), ".decorators"),
    **dict.fromkeys(
        ("BufferedStreams", "LongestRun", "OnReplay", "OnTakeover", "StatusOnly", "Tombstones"),
        ".engine.options",
    ),
    **dict.fromkeys(
        ("current_operation", "deadline", "derive_key", "idempotent_function", "remaining"),
        ".functions",
    ),
    "realm": ".scopes",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name], __name__), name)
