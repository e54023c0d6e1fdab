"""Tools for your tests, and for the tests of your own store.

`assert_idempotent` calls something twenty times at once; `History` records the responses of many
clients, and `assert_linearizable` says if they are possible together; `override_idempotency`
switches idempotency off or on; `interrupt_at` breaks off a view or function at one of its steps,
and `crash_matrix` kills a process at each of its statements; `RecordingStore` records which verbs
were called; `StoreContract` tests what every store must do, and `tickets.make_ticket` makes a
ticket to claim; `clock.elapse` lets time pass for the ORM store without sleeping. Import what is
not listed below from its module: some load the model, and this package must not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .asserting import assert_idempotent
    from .contract import StoreContract
    from .crashing import Crash, CrashPoint, Interrupted, crash_matrix, interrupt_at
    from .linearizability import History, assert_linearizable
    from .overriding import override_idempotency
    from .recording import RecordingStore

__all__ = [
    "Crash",
    "CrashPoint",
    "History",
    "Interrupted",
    "RecordingStore",
    "StoreContract",
    "assert_idempotent",
    "assert_linearizable",
    "crash_matrix",
    "interrupt_at",
    "override_idempotency",
]

#: Name → its module, which is loaded when the name is asked for: the contract needs pytest, and its
#: asserts rewritten.
_MODULES = {
    "RecordingStore": "recording",
    "StoreContract": "contract",
    "assert_idempotent": "asserting",
    "override_idempotency": "overriding",
    **dict.fromkeys(
        ("Crash", "CrashPoint", "Interrupted", "crash_matrix", "interrupt_at"), "crashing"
    ),
    **dict.fromkeys(("History", "assert_linearizable"), "linearizability"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
