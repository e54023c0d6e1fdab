"""Interrupts at any line: a time limit of a worker raises wherever the program happens to be."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

PACKAGE = str(Path(__file__).resolve().parents[2] / "django_idempotency") + "/"


class TimeLimit(Exception):
    """As Celery's: an ordinary exception."""


class HardLimit(BaseException):
    """As gevent's: no `except Exception` sees it."""


@contextmanager
def limited(seconds: float, error: type[BaseException] = TimeLimit) -> Iterator[None]:
    """Raise in the middle of what runs here, after so many seconds, by a real signal."""

    def handle(_number: int, _frame: Any) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, handle)
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left)  # of a limit around this one


class Line(NamedTuple):
    """A line of the package, by its file, and the how manieth time it runs."""

    file: str
    number: int
    nth: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number} ({self.nth}, {self.function})"


class Interrupt:
    """Makes a call, and raises at one line of the package if that is reached. Without a line it
    notes all of them.
    """

    def __init__(self, at: Line | None = None, error: type[BaseException] = TimeLimit) -> None:
        self.lines: list[Line] = []
        self.raised: BaseException | None = None
        self._at = at
        self._error = error
        self._counts: Counter[tuple[str, int]] = Counter()

    def __call__(self, call: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            return call()
        finally:
            sys.settrace(before)

    def _entered(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event != "line" or self.raised is not None:
            return self._line
        code = frame.f_code
        place = (code.co_filename, frame.f_lineno)
        self._counts[place] += 1
        line = Line(
            code.co_filename.removeprefix(PACKAGE),
            frame.f_lineno,
            self._counts[place],
            code.co_name,
        )
        if self._at is None:
            self.lines.append(line)
        elif line == self._at:
            self.raised = self._error(f"at {line}")
            raise self.raised
        return self._line
