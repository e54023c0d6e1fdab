"""The tests of what every store must do.

Inherit them, define how to create your store and how its time passes, and run them with pytest:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self):
            return MyStore(clock=...)

        def elapse(self, store, seconds):
            ...

`base.Contract` lists what else your store can provide: a hook that is not overridden skips its
tests, with a reason. For readable failures, call
`pytest.register_assert_rewrite("django_idempotency.testing.contract")` before the import. The
random sequences need hypothesis.
"""

from __future__ import annotations

from .base import Contract
from .claims import Claims, Guards
from .concurrency import Histories, InOneLoop
from .costs import Costs
from .endings import Endings, Forgetting, Retention
from .maintenance import Eviction, Maintenance, Scanning
from .sequences import Sequences
from .suspending import Suspending


class StoreContract(
    Claims,
    Endings,
    Maintenance,
    Retention,
    Scanning,
    Forgetting,
    InOneLoop,
    Guards,
    Costs,
    Eviction,
    Suspending,
    Histories,
    Sequences,
    Contract,
):
    """A class of tests. Each test gets an empty store from the fixture `store`, which you
    define.
    """


__all__ = ["Contract", "StoreContract"]
