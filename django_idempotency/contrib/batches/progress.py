"""Progress of a batch: an overwritten line on a terminal, or a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

#: `progress(done, total)`, called after each record; `total` is `None` if the records cannot be counted.
OnProgress = Callable[[int, int | None], object]

#: Seconds between two writes: to a terminal, and to anything else.
FRAME = 0.1
PACE = 5.0


@contextmanager
def showing(progress: bool | OnProgress | None, total: int | None) -> Iterator[Callable[[int], object]]:
    """Yield a function that takes the number done. `True` shows it, `None` only on a terminal; a function is called."""
    watched = sys.stderr is not None and sys.stderr.isatty()
    if callable(progress):
        report = progress
        yield lambda done: report(done, total)
    elif progress or (progress is None and watched):
        line = _Line(total, watched=watched)
        try:
            yield line
        finally:
            line.end()
    else:
        yield lambda _: None


class _Line:
    def __init__(self, total: int | None, *, watched: bool) -> None:
        self._of = "" if total is None else f" of {total:,}"
        self._watched = watched
        self._shown = time.monotonic()
        self._done = 0

    def __call__(self, done: int) -> None:
        self._done = done
        now = time.monotonic()
        if now - self._shown >= (FRAME if self._watched else PACE):
            self._shown = now
            self._write(f"\r{self}\033[K" if self._watched else f"{self}\n")

    def __str__(self) -> str:
        return f"{self._done:,}{self._of} records"

    def end(self) -> None:
        """Clear the line of a terminal; elsewhere print the final count."""
        self._write("\r\033[K" if self._watched else f"{self}\n")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the terminal was closed: the batch continues
            sys.stderr.write(text)
            sys.stderr.flush()
