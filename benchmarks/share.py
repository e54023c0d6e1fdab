"""How much of a guarded request is our own Python: CPU time without the database, its driver and
Django's cursors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.utils import DatabaseErrorWrapper

from .entry_points import EntryPoints
from .measuring import Effort, interleaved
from .table import Row, Section

#: Microseconds that the design allows.
FIRST, KNOWN = 400, 170


class OwnTime:
    """A clock of this thread's CPU (seconds) that stands still while a cursor is made, executes, or
    is read.
    """

    def __init__(self) -> None:
        self._inside = 0.0
        self._depth = 0

    def __call__(self) -> float:
        return time.thread_time() - self._inside

    @contextmanager
    def running(self) -> Iterator[None]:
        # `_execute`, because the guard's own wrapper is around it; a fetch is what the error
        # wrapper is given to call.
        methods: tuple[tuple[Any, str], ...] = (
            *((CursorWrapper, name) for name in ("_execute", "__exit__")),
            *((BaseDatabaseWrapper, name) for name in ("cursor", "set_autocommit")),
        )
        with ExitStack() as patches:
            for cls, name in methods:
                patches.enter_context(patch.object(cls, name, self._excluded(getattr(cls, name))))
            wrapped = DatabaseErrorWrapper.__call__
            # A method's stand-in.
            fetching = lambda errors, fetch: self._excluded(wrapped(errors, fetch))  # noqa: E731
            patches.enter_context(patch.object(DatabaseErrorWrapper, "__call__", fetching))
            yield

    def _excluded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def excluded(*args: Any, **kwargs: Any) -> Any:
            start, self._depth = time.thread_time(), self._depth + 1
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._inside += time.thread_time() - start

        return excluded


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
    rows = [
        Row(name=case.name, values=micro(timings[case.name]), unit="µs")
        for case in (bare, authenticated)
    ]
    for case, base in bases.items():
        less = [
            whole - part for whole, part in zip(timings[case.name], timings[base.name], strict=True)
        ]
        rows.append(
            Row(
                name=case.name, values=micro(less), unit="µs", bar=FIRST if case is first else KNOWN
            )
        )
    return Section(
        title="CPU time of one request through DRF with token auth, without cursors and driver",
        rows=rows,
    )


def micro(seconds: list[float]) -> list[float]:
    return [each * 1e6 for each in seconds]
