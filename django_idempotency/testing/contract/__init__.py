"""What every store keeps. Inherit it, say how your store is made and how its time passes, and run it with pytest:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self):
            return MyStore(clock=...)

        def elapse(self, store, seconds):
            ...

What else your store can be asked is in `base.Contract`: a hook that is not overridden skips its tests, and they say so.
Call `pytest.register_assert_rewrite("django_idempotency.testing.contract")` before the import for readable failures.
The random sequences need hypothesis.
"""

from __future__ import annotations

from .base import Contract
from .claims import Claims
from .costs import Costs
from .crowds import Crowds
from .endings import Endings
from .guards import Guards
from .nesting import Nesting
from .sequences import Sequences
from .suspending import Suspending
from .twins import Twins
from .upkeep import Upkeep
from .vanishing import Vanishing


class StoreContract(
    Claims, Endings, Upkeep, Twins, Guards, Costs, Vanishing, Nesting, Suspending, Crowds, Sequences, Contract
):
    """A class of tests. Every test gets an empty store from the fixture `store`, which you define."""


__all__ = ["Contract", "StoreContract"]
