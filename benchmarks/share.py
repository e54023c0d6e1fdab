"""How much of a guarded request is our own Python: CPU time without the database, its driver and Django's cursors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from django.db.backends.utils import CursorWrapper

from .entry_points import EntryPoints
from .measuring import Effort, interleaved
from .table import Row, Section

#: Microseconds that the design allows.
FIRST, KNOWN = 200, 100


class OwnTime:
    """A clock of this thread's CPU (seconds) that stands still while a cursor executes."""

    def __init__(self) -> None:
        self._inside = 0.0

    def __call__(self) -> float:
        return time.thread_time() - self._inside

    @contextmanager
    def running(self) -> Iterator[None]:
        wrapper: Any = CursorWrapper
        execute = wrapper._execute  # noqa: SLF001 - the guard's own wrapper is around it

        def noted(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                return execute(*args, **kwargs)
            finally:
                self._inside += time.thread_time() - start

        with patch.object(CursorWrapper, "_execute", noted):
            yield


def share(effort: Effort) -> Section:
    entry_points = EntryPoints("share")
    path = "/rest/guarded/"
    known, running = entry_points.used(path), entry_points.running(path)
    bare = entry_points.case("bare DRF view", "/rest/bare/")
    authenticated = entry_points.case("authentication alone", "/rest/authenticated/")
    first = entry_points.case("first request, atomic, less the bare view", path, entry_points.fresh)
    replay = entry_points.case("replay, less authentication", path, lambda: known)
    busy = entry_points.case("busy (409), less authentication", path, lambda: running, status=409)
    bases = {first: bare, replay: authenticated, busy: authenticated}
    clock = OwnTime()
    with clock.running():
        timings = interleaved([bare, authenticated, *bases], effort, clock)
    rows = [Row(name=case.name, values=micro(timings[case.name]), unit="µs") for case in (bare, authenticated)]
    for case, base in bases.items():
        less = [whole - part for whole, part in zip(timings[case.name], timings[base.name], strict=True)]
        rows.append(Row(name=case.name, values=micro(less), unit="µs", bar=FIRST if case is first else KNOWN))
    return Section(title="CPU time of one request through DRF with token auth, without cursors and driver", rows=rows)


def micro(seconds: list[float]) -> list[float]:
    return [each * 1e6 for each in seconds]
