"""The rate of a host that throttles, in simulated time; and a call that waits for its turn."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from django_idempotency.contrib.client.adaptive import (
    LOOKS,
    MOST_HOSTS,
    SLOWEST,
    Pace,
    Turns,
    pace_of,
)
from django_idempotency.contrib.client.exchange import RetryBudget
from django_idempotency.contrib.client.models import OutgoingCall
from django_idempotency.errors import DeadlinePassed

from .callers import Reply
from .provider import Failure, Provider

AMOUNT = {"amount": 2499}


class Host:
    """It takes so many requests a second, of which it holds as many, and throttles the others."""

    def __init__(self, limit: float) -> None:
        self.limit = self.tokens = limit
        self.filled = 0.0

    def takes(self, now: float) -> bool:
        self.tokens = min(self.limit, self.tokens + (now - self.filled) * self.limit)
        self.filled = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


def simulated(
    limit: float, demand: float, *, processes: int = 1, adaptive: bool = True
) -> tuple[float, float]:
    """Send at random moments for two minutes.

    Return how many were taken a second in the second one, and were throttled.
    """
    chance, host, seconds = random.Random(7), Host(limit), 120
    paces = [Pace() if adaptive else None for _ in range(processes)]
    events: list[tuple[float, int, str, Any]] = []
    now, count, taken, throttled = 0.0, 0, 0, 0
    while now < seconds:
        now += chance.expovariate(demand)
        count += 1
        heapq.heappush(events, (now, count, "call", (Turns(chance.choice(paces)), now + 30)))
    while events and events[0][0] < seconds:
        now, number, what, (turns, until) = heapq.heappop(events)
        if what == "response":
            turns.heard(429, now)
            continue
        try:
            wait = turns.wait(now, until - now)
        except DeadlinePassed:
            continue
        if wait:
            heapq.heappush(events, (now + wait, number, "call", (turns, until)))
            continue
        if host.takes(now):
            taken += now >= 60
        else:
            throttled += now >= 60
            heapq.heappush(events, (now + 0.1, number, "response", (turns, until)))
    return taken / 60, throttled / 60


#: What the host takes a second, what is asked of it, processes → the least that it does, the most
#: that it throttles.
LOADS = [
    (10, 5, 1, 4.0, 0.0),  # it has no limit until it is throttled
    (10, 20, 1, 9.5, 0.5),
    (10, 50, 1, 9.5, 0.5),
    (50, 250, 1, 47.0, 1.0),
    (10, 50, 4, 9.5, 1.0),  # four processes, which do not know of each other
]


@pytest.mark.parametrize(("limit", "demand", "processes", "least", "most"), LOADS)
def test_a_host_that_throttles(
    limit: float, demand: float, processes: int, least: float, most: float
) -> None:
    """It is asked for about what it takes. Otherwise it would throttle all that is more."""
    taken, throttled = simulated(limit, demand, processes=processes)
    assert taken >= least
    assert throttled <= most
    if demand > limit:
        assert simulated(limit, demand, adaptive=False)[1] > demand * 0.4


def left(pace: Pace, place: float | None, now: float) -> float:
    """Return how long a place waits."""
    wait = None if place is None else pace.look(place, now, 1e9)
    assert wait is not None
    return wait


def rate(pace: Pace, now: float) -> float:
    """Return the rate: how far two places are from each other."""
    first, second = (pace.stand(now, 1e9) for _ in range(2))
    assert first is not None
    assert second is not None
    return 1 / (left(pace, second, now) - left(pace, first, now))


def sent(pace: Pace, *, per_second: float, until: float) -> None:
    for number in range(int(until * per_second)):
        pace.stand(number / per_second, 1e9)


def test_no_limit_before_the_first() -> None:
    pace = Pace()
    assert {left(pace, pace.stand(7.0, 1.0) or 0.0, 7.0) for _ in range(1000)} == {0.0}


def test_it_falls_as_throttling_grows_and_comes_back() -> None:
    """Each second in which the host throttles cuts it, down to a least; without, it grows to more
    than it was.
    """
    pace = Pace()
    sent(pace, per_second=20, until=20)
    rates = []
    for second in range(20, 40):
        pace.throttled(second)
        rates.append(rate(pace, second))
    assert 0.6 < rates[0] / 20 < 0.8
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(SLOWEST)
    assert rate(pace, 45) > 2 * SLOWEST
    assert rate(pace, 3600) > 100


def test_what_was_sent_together_counts_once() -> None:
    pace, other = Pace(), Pace()
    for each in (pace, other):
        sent(each, per_second=20, until=20)
        each.throttled(20.0)
    for number in range(50):
        pace.throttled(20.0 + number / 60)
    assert rate(pace, 20.9) == pytest.approx(rate(other, 20.9))


def test_a_cut_counts_for_those_that_wait() -> None:
    pace = Pace()
    sent(pace, per_second=20, until=20)
    pace.throttled(20.0)
    place = [pace.stand(20.0, 60.0) for _ in range(100)][-1]
    assert place is not None
    before = left(pace, place, 20.0)
    pace.throttled(21.0)
    assert left(pace, place, 21.0) > before
    waited = 21.0
    while wait := left(pace, place, waited):
        waited += min(wait, LOOKS)
    assert waited < 21.0 + 2 * before  # and it grows again meanwhile


def test_nobody_stands_who_comes_too_late() -> None:
    """Who would wait for too long takes no place, so that nothing is lost to the others."""
    pace = Pace()
    pace.throttled(0.0)
    assert pace.stand(0.0, 10.0) is not None
    assert [pace.stand(0.0, 1.0) for _ in range(100)] == [None] * 100
    second = pace.stand(0.0, 10.0)
    assert second is not None
    assert left(pace, second, 0.0) == pytest.approx(2 / SLOWEST)


def test_unused_turns_are_not_saved() -> None:
    """After a pause one may be sent at once, and the next waits: the row is no stock."""
    pace = Pace()
    pace.throttled(0.0)
    places = [pace.stand(100.0, 60.0) for _ in range(2)]
    waits = [left(pace, place, 100.0) for place in places if place is not None]
    assert waits[0] == 0
    assert waits[1] > 0


def test_threads() -> None:
    """Each place is somebody's own."""
    pace = Pace()
    pace.throttled(0.0)
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda _: pace.stand(0.0, 1e9), range(2000)))
    assert len(set(places)) == 2000


def test_one_pace_per_host() -> None:
    """All clients of a process share it, and a process that calls any host does not grow
    forever.
    """
    first = pace_of("one.example")
    assert pace_of("one.example") is first is not pace_of("other.example")
    for number in range(MOST_HOSTS):
        pace_of(f"host-{number}")
    assert pace_of("one.example") is not first


# ------------------------------------------------------------------------------------------- a call

calls = pytest.mark.any_database


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses that calls make, in whose time nothing else happens."""
    slept: list[float] = []

    async def asleep(seconds: float) -> None:
        slept.append(seconds)

    exchange = "django_idempotency.contrib.client.exchange"
    clock = SimpleNamespace(monotonic=lambda: 1000.0 + sum(slept), sleep=slept.append)
    monkeypatch.setattr(f"{exchange}.time", clock)
    monkeypatch.setattr(f"{exchange}.asyncio", SimpleNamespace(sleep=asleep))
    return slept


@calls
@pytest.mark.parametrize("status", [429, 503])
def test_the_next_call_waits(
    call: Callable[..., Reply], provider: Provider, slept: list[float], status: int
) -> None:
    """After a throttled call all clients of the host are slower; who did not ask for that is
    not.
    """
    provider.plan = [Failure(status=status, headers={"x-should-retry": "false"})]
    for name in ("first", "second"):
        call("POST", provider.url, name, json=AMOUNT, terms={"adaptive": True})
    assert 0.8 / SLOWEST < sum(slept) < 1 / SLOWEST  # it grows meanwhile
    assert max(slept) <= LOOKS
    slept.clear()
    call("POST", provider.url, "third", json=AMOUNT)
    assert slept == []


@calls
def test_a_retry_waits(call: Callable[..., Reply], provider: Provider, slept: list[float]) -> None:
    """A retry has its turn like any other, and not before its own pause has ended."""
    provider.plan = [Failure(status=429, headers={"Retry-After": "5"})]
    call("POST", provider.url, "order-17", json=AMOUNT, terms={"adaptive": True})
    assert slept == [5.0]
    assert len(provider.seen) == 2


@calls
def test_a_retry_that_would_come_too_late(
    call: Callable[..., Reply], provider: Provider, slept: list[float]
) -> None:
    """The caller gets the response there is."""
    provider.plan = [Failure(status=429)]
    reply = call(
        "POST", provider.url, "order-17", json=AMOUNT, terms={"adaptive": True, "deadline": 1.0}
    )
    assert reply.status == 429
    assert slept == []


@calls
def test_a_retry_that_the_budget_refuses(
    call: Callable[..., Reply], provider: Provider, slept: list[float]
) -> None:
    """It leaves the row: the next call waits for its own turn, and for nobody else's."""
    provider.plan = [Failure(status=429)]
    terms = {"adaptive": True, "budget": RetryBudget(capacity=0)}
    assert call("POST", provider.url, "first", json=AMOUNT, terms=terms).status == 429
    assert call("POST", provider.url, "second", json=AMOUNT, terms=terms).status == 200
    assert 0.8 / SLOWEST < sum(slept) < 1 / SLOWEST


@calls
def test_a_turn_that_comes_too_late(
    call: Callable[..., Reply], provider: Provider, slept: list[float]
) -> None:
    """It is not sent, and its caller knows at once; a stored response needs no turn."""
    call("POST", provider.url, "stored", json=AMOUNT, terms={"adaptive": True})
    pace_of(provider.url.removeprefix("http://")).throttled(1000.0)
    with pytest.raises(DeadlinePassed, match="throttles"):
        call(
            "POST", provider.url, "order-17", json=AMOUNT, terms={"adaptive": True, "deadline": 1.0}
        )
    assert (slept, len(provider.seen)) == ([], 1)
    assert OutgoingCall.objects.get(name="order-17").state == "refused"
    assert (
        call(
            "POST", provider.url, "stored", json=AMOUNT, terms={"adaptive": True, "deadline": 1.0}
        ).status
        == 200
    )
    assert (
        call("POST", provider.url, "order-17", json=AMOUNT, terms={"adaptive": True}).status == 200
    )


def test_what_was_given_up_was_not_sent() -> None:
    """A cut is measured by what was sent: calls that left the row do not count."""
    paces = Pace(), Pace()
    for pace in paces:
        sent(pace, per_second=20, until=20)
    for place in [paces[1].stand(20.0, 1e9) for _ in range(30)]:
        assert place is not None
        paces[1].leave(place)
    for pace in paces:
        pace.throttled(20.0)
    one, other = (rate(pace, 20.0) for pace in paces)
    assert one == pytest.approx(other)


def test_a_cut_while_it_waits() -> None:
    """Its turn may move behind its deadline: then it leaves, and those behind it move up."""
    pace = Pace()
    sent(pace, per_second=20, until=20)
    pace.throttled(20.0)
    for _ in range(28):
        pace.stand(20.0, 60.0)
    turns = Turns(pace)
    assert turns.wait(20.0, 3.0) == LOOKS
    behind = pace.stand(20.0, 60.0)
    pace.throttled(21.0)
    before = left(pace, behind, 21.0)
    with pytest.raises(DeadlinePassed, match="throttles"):
        turns.wait(21.0, 0.5)
    assert left(pace, behind, 21.0) == pytest.approx(before - 1 / rate(pace, 21.0))
    waited = 21.0
    while wait := left(pace, behind, waited):
        waited += min(wait, LOOKS)
    assert waited < 21.0 + before
