"""Timing that tolerates a noisy machine: every case in turn, ratios within a round, medians over
rounds.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

Act = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    rounds: int
    samples: int
    #: The largest table of the growth section, and the number of rows that a purge deletes in a
    #: round.
    rows: int
    purged: int
    #: What one worker serves while its memory is watched, and the claims of a simulated day.
    requests: int = 0
    churn: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to time. `prepare` sets it up, outside the timing."""

    name: str
    prepare: Callable[[], Act]


class Timings(dict[str, list[float]]):
    """Case → its median in each round, in seconds."""

    def ratios(self, name: str, base: str) -> list[float]:
        return [mine / theirs for mine, theirs in zip(self[name], self[base], strict=True)]


def interleaved(
    cases: Sequence[Case], effort: Effort, clock: Callable[[], float] = time.perf_counter
) -> Timings:
    """Time all cases, in a new order at each turn, so that no case always follows the same
    neighbour.
    """
    order = list(cases)
    shuffle = random.Random(1).shuffle
    for case in order * min(5, effort.samples):
        case.prepare()()
    timings = Timings({case.name: [] for case in cases})
    for _ in range(effort.rounds):
        seen: dict[str, list[float]] = {case.name: [] for case in cases}
        with no_collection():
            for _ in range(effort.samples):
                shuffle(order)
                for case in order:
                    seen[case.name].append(timed(case.prepare(), clock))
        for name, times in seen.items():
            timings[name].append(median(times))
    return timings


def timed(act: Act, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    act()
    return clock() - start


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect garbage now, and not during a measurement."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
