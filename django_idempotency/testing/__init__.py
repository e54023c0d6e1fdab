"""For your tests, and for the tests of your own store.

`StoreContract` is what every store must keep; `tickets.make_ticket` makes something to claim;
`recording.RecordingStore` tells which verbs were called; `clock.elapse` lets time pass for the ORM store without sleep.
Import these from their modules: some load the model, and this package must not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .contract import StoreContract as StoreContract


def __getattr__(name: str) -> Any:
    """Load the contract when it is asked for: it needs pytest, and wants its asserts rewritten before."""
    if name != "StoreContract":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .contract import StoreContract

    return StoreContract
