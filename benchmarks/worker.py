"""How much a worker's memory grows: the same process serves request after request."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

from .entry_points import EntryPoints
from .measuring import Effort
from .table import Point, Row, Section

#: Requests before the first reading: caches fill, and the allocator finds its size.
WARM_UP = 20_000
READINGS = 40
STATM = Path("/proc/self/statm")
MIB = 1 << 20


def sections(effort: Effort) -> Iterator[Section]:
    if STATM.exists():  # on Linux
        yield memory(effort)


def memory(effort: Effort) -> Section:
    """Read the resident memory of this process while it serves requests, half of them replays."""
    readings = dict(served(EntryPoints("worker"), effort))
    first, *_, last = readings.values()
    half = len(readings) // 2
    rows = [
        Row(name="after warming up", values=[first / MIB], unit="MiB"),
        Row(name="growth until the end", values=[(last - first) / MIB], unit="MiB", bar=2),
        Row(
            name="growth in the second half",
            values=[(last - list(readings.values())[half]) / MIB],
            unit="MiB",
        ),
    ]
    title = (
        f"Resident memory of a worker, {max(readings):,} requests after "
        f"{min(WARM_UP, effort.requests):,}"
    )
    return Section(
        title=title,
        rows=rows,
        points=[
            Point("memory", "a worker", count, value / MIB) for count, value in readings.items()
        ],
    )


def served(entry_points: EntryPoints, effort: Effort) -> Iterator[tuple[int, int]]:
    """Yield the number of requests so far and the bytes then, again and again."""
    first = entry_points.case("first", "/atomic/", entry_points.fresh)
    replay = entry_points.case("replay", "/atomic/", entry_points.latest)

    def serve(count: int) -> None:
        for _ in range(count // 2):
            first.prepare()()
            replay.prepare()()

    serve(min(WARM_UP, effort.requests))
    yield 0, resident()
    step = max(effort.requests // READINGS, 2)
    for done in range(step, effort.requests + 1, step):
        serve(step)
        yield done, resident()


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    gc.collect()
    return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
