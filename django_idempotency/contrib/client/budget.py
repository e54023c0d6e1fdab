"""A budget of retries for each host, shared by all transports of a process: an outage is not made worse by us.

A retry costs a token. A success earns a tenth of one, and so do ten seconds. At one call a second or more, at most one
request in ten is a retry, once the tokens that the bucket began with are gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ...core.concurrency import new_lock

#: Tokens that a bucket holds, and begins with: enough for the hiccups of a host that is rarely called.
CAPACITY = 10.0
PER_SUCCESS = 0.1
PER_SECOND = 0.1
#: Hosts that are remembered. A process that calls more forgets the budget of the one that was called first.
MOST_HOSTS = 1000


class RetryBudget:
    """A token bucket. Thread safe; `clock` returns seconds."""

    def __init__(
        self,
        *,
        capacity: float = CAPACITY,
        per_success: float = PER_SUCCESS,
        per_second: float = PER_SECOND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._capacity = self._tokens = capacity
        self._per_success, self._per_second = per_success, per_second
        self._clock = clock
        self._filled_at = clock()
        self._lock = new_lock()

    def spend(self) -> bool:
        """Take a token for a retry. Returns whether there was one."""
        with self._lock:
            self._fill(0.0)
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def earn(self) -> None:
        """Note a success."""
        with self._lock:
            self._fill(self._per_success)

    def _fill(self, earned: float) -> None:
        now = self._clock()
        earned += (now - self._filled_at) * self._per_second
        self._tokens, self._filled_at = min(self._capacity, self._tokens + earned), now


_budgets: dict[str, RetryBudget] = {}
_making = new_lock()


def budget_of(host: str) -> RetryBudget:
    """Return this process's budget of a host."""
    with _making:
        if host not in _budgets:
            if len(_budgets) >= MOST_HOSTS:
                del _budgets[next(iter(_budgets))]
            _budgets[host] = RetryBudget()
        return _budgets[host]
