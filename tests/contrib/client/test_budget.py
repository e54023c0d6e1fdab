"""The retry budget: how much worse an outage gets by our retries."""

from __future__ import annotations

import pytest

from django_idempotency.contrib.client.adaptive import MOST_HOSTS
from django_idempotency.contrib.client.exchange import CAPACITY, RetryBudget, budget_of


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def sent_during(
    budget: RetryBudget,
    clock: Clock,
    *,
    calls: int,
    per_second: float,
    down: bool,
    retries: int = 3,
) -> int:
    """Return how many requests are sent for a number of calls, of which none or each succeeds."""
    sent = 0
    for _ in range(calls):
        clock.now += 1 / per_second
        sent += 1
        if not down:
            budget.earn()
            continue
        for _ in range(retries):
            if not budget.spend():
                break
            sent += 1
    return sent


@pytest.mark.parametrize("per_second", [2, 10, 1000])
def test_amplification_under_an_outage(per_second: float) -> None:
    """While a host is down, at most one request in ten is a retry; without a budget each is sent
    four times.
    """
    clock = Clock()
    budget = RetryBudget(clock=clock)
    sent_during(budget, clock, calls=1000, per_second=per_second, down=False)
    sent = sent_during(budget, clock, calls=1000, per_second=per_second, down=True)
    assert 1000 < sent <= 1100


def test_a_rarely_called_host() -> None:
    """Ten tokens are there at the beginning, and one more after ten seconds: the second failure of
    a day is retried.
    """
    clock = Clock()
    budget = RetryBudget(clock=clock)
    assert [budget.spend() for _ in range(11)] == [True] * int(CAPACITY) + [False]
    clock.now += 9
    assert not budget.spend()
    clock.now += 1.001
    assert budget.spend()
    clock.now += 3600
    assert [budget.spend() for _ in range(11)] == [True] * 10 + [False]  # never more than it holds


def test_ten_successes_earn_a_retry() -> None:
    clock = Clock()
    budget = RetryBudget(capacity=1, clock=clock)
    assert budget.spend()
    for _ in range(9):
        budget.earn()
    assert not budget.spend()
    budget.earn()
    budget.earn()  # 0.1 is not exact
    assert budget.spend()


def test_one_budget_per_host() -> None:
    assert budget_of("one.example") is budget_of("one.example") is not budget_of("other.example")


def test_hosts_are_bounded() -> None:
    """A process that calls any host does not grow forever."""
    first = budget_of("a")
    for number in range(MOST_HOSTS):
        budget_of(f"host-{number}")
    assert budget_of("a") is not first
