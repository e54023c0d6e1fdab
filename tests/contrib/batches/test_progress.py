"""The progress of a batch, on terminals and elsewhere."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from django_idempotency.contrib.batches import report as progress
from tests.functions.helpers import NetworkDown, Runs

from .helpers import guarded, process, sync_and_async

pytestmark = pytest.mark.usefixtures("memory")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let a second pass at each reading of the clock; if empty, none."""
    passing = [1.0]
    now = [0.0]

    def monotonic() -> float:
        now[0] += sum(passing)
        return now[0]

    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=monotonic))
    return passing


def shown(
    monkeypatch: pytest.MonkeyPatch, stderr: Any, mode: str, records: Any, **options: Any
) -> str:
    monkeypatch.setattr(sys, "stderr", stderr)
    process(records, guarded(Runs(lambda record: record), mode), mode, **options)
    return stderr.getvalue() if stderr is not None else ""


@sync_and_async
def test_a_terminal(mode: str, seconds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line is overwritten, and removed at the end."""
    assert shown(monkeypatch, Terminal(), mode, [1, 2]) == (
        "\r1 of 2 records\033[K\r2 of 2 records\033[K\r\033[K"
    )
    assert (
        shown(monkeypatch, Terminal(), mode, iter([1, 2]))
        == "\r1 records\033[K\r2 records\033[K\r\033[K"
    )


class Closed(Terminal):
    """Like a terminal after a hang-up."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


@sync_and_async
def test_a_terminal_that_is_closed(
    mode: str, seconds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed terminal does not affect the batch."""
    monkeypatch.setattr(sys, "stderr", Closed())
    report = process([1, 2], guarded(Runs(lambda record: record), mode), mode)
    assert report.counts["succeeded"] == 2


def test_not_too_often(seconds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates are limited: a terminal is slower than a replay."""
    seconds[:] = [0.001]
    assert shown(monkeypatch, Terminal(), "sync", range(1000)).count("records") in (9, 10)


@pytest.mark.parametrize(
    ("stderr", "asked", "expected"),
    [
        (Terminal, False, ""),
        (io.StringIO, None, ""),
        # Every five seconds, and the final count.
        (
            io.StringIO,
            True,
            "5 of 7 records\n7 of 7 records\n",
        ),
        (lambda: None, None, ""),  # a process without a terminal
    ],
)
def test_without_a_terminal(
    stderr: Any, asked: Any, expected: str, seconds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is shown unless requested."""
    assert shown(monkeypatch, stderr(), "sync", range(7), progress=asked) == expected


@sync_and_async
def test_a_function(mode: str) -> None:
    """The function is called for each record, done or not, without a total if there is none."""
    reported: list[tuple[int, int | None]] = []

    def work(record: int) -> None:
        if record == 1:
            raise NetworkDown

    handler = guarded(work, mode)
    process([1, 2], handler, mode, progress=lambda done, total: reported.append((done, total)))
    process(iter([1]), handler, mode, progress=lambda done, total: reported.append((done, total)))
    assert reported == [(1, 2), (2, 2), (1, None)]


@sync_and_async
def test_a_function_that_raises(mode: str) -> None:
    """An error of the function ends the batch; completed records are remembered."""

    def enough(done: int, total: int | None) -> None:
        raise NetworkDown

    handler = guarded(Runs(), mode)
    with pytest.raises(NetworkDown):
        process([1], handler, mode, progress=enough)
    assert len(process([1], handler, mode).replayed) == 1


def test_a_terminal_after_a_failure(seconds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is also removed after a failure."""
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)

    def work(record: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process([1], guarded(work, "sync"), "sync")
    assert stderr.getvalue().endswith("\r\033[K")
