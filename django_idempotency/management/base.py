"""What our commands share: progress, patience, and errors in words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from .. import conf
from ..core.records import Record
from ..errors import LostRace, OutcomeUnknown, StoreUnavailable
from ..inspection.failures import MISCONFIGURED, advice, reason
from ..runtime.registry import stores
from ..stores.base import BaseStore
from .arguments import add_store, positive
from .parts import HelpedCommand

#: Seconds between two lines of progress without a terminal.
PACE = 5.0
#: Tries of a change that loses a race.
TRIES = 5
#: Changes that lose all their tries, one after the other, until no more are begun: then it is no
#: matter of one record.
MOST_LOST = 5
T = TypeVar("T")


class ProgressCommand(HelpedCommand):
    """A command that says how far it is. Call `begin()` first."""

    verbosity: int
    #: When the work began, and when the last line of progress was written, by the monotonic clock.
    started: float
    reported: float
    #: Is a line on the terminal that must be cleared?
    _shown = False

    def begin(self, options: dict[str, Any]) -> None:
        self.verbosity = options["verbosity"]
        self.started = self.reported = time.monotonic()

    def so_far(self) -> str:
        """Say how far it is, in a sentence."""
        raise NotImplementedError

    def on_terminal(self) -> str:
        """Say it on a terminal, over what was said before.

        Clear that first if this may be shorter.
        """
        return f"\033[K{self.so_far()}"

    def per_second(self, count: int) -> str:
        """Return how long the work has taken, and how much of it a second does."""
        seconds = max(time.monotonic() - self.started, 0.001)
        return f"{seconds:,.1f} s ({count / seconds:,.0f}"

    @property
    def writes_lines(self) -> bool:
        """Is progress written without a terminal?"""
        return self.verbosity > 1

    def progress(self) -> None:
        """Show progress: on a terminal one line, overwritten; elsewhere one every few seconds, at
        --verbosity 2.
        """
        now = time.monotonic()
        if self.verbosity > 0 and self.stderr.isatty():
            self._shown = True
            self.stderr.write(f"\r{self.on_terminal()}", ending="")
            self.stderr.flush()
        elif self.writes_lines and now - self.reported >= PACE:
            self.reported = now
            self.stderr.write(self.so_far())

    def end_progress(self) -> None:
        """Clear the line on the terminal."""
        if self._shown:
            self._shown = False
            self.stderr.write("\r\033[K", ending="")

    def say(self, sentence: str) -> None:
        """Print a sentence, unless nothing is to be printed."""
        if self.verbosity > 0:
            self.stdout.write(sentence)


class StoreCommand(ProgressCommand):
    """A command on a store, and on what apps keep beside it."""

    #: It is needed most when something is wrong, perhaps with a route that has nothing to do with
    #: it.
    requires_system_checks: Any = ()
    alias: str
    store: BaseStore
    #: What a race is about.
    unit = "record"
    #: What went wrong with one part, while the command went on with the others.
    failed: list[str]
    #: Changes in a row that lost each race.
    _lost = 0

    def handle(self, *args: Any, **options: Any) -> None:
        self.alias = options["store"] or conf.get("STORE")
        self.failed = []
        self.begin(options)
        with self.explained():
            self.store = stores[self.alias]
            self.look(**options)

    def look(self, **options: Any) -> None:
        """Do the work."""
        raise NotImplementedError

    def changed(self) -> str:
        """Return what a command that changes something adds to an error: how far it came."""
        return ""

    def patiently(self, act: Callable[[], T]) -> T:
        """Call it again if it loses a race (a deadlock, a lock of SQLite), each time after a longer
        pause.
        """
        for attempt in range(1, TRIES):
            try:
                return act()
            except LostRace:
                time.sleep(0.1 * attempt)
        return act()

    def patiently_or(self, left: T, act: Callable[[], T]) -> T:
        """Call it as `patiently()` does.

        Return `left` for one that loses each race: the others are not concerned.

        Raises `LostRace` if several do so in a row.
        """
        try:
            done = self.patiently(act)
        except LostRace:
            self._lost += 1
            if self._lost >= MOST_LOST:
                raise
            return left
        self._lost = 0
        return done

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Note what goes wrong with one part, and go on with the others; `require_all()` raises
        it.
        """
        try:
            with self.explained():
                yield
        except CommandError as error:
            if error.returncode != 1:  # interrupted
                raise
            self.failed.append(str(error))

    def require_all(self) -> None:
        """Raise `CommandError` with what went wrong with some parts."""
        if self.failed:
            raise CommandError("\n".join(self.failed))

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what the store raises, and an interruption, into an error that says so, and how far
        it came.
        """
        try:
            yield
        except MISCONFIGURED as error:
            raise CommandError(advice(error, self.alias, conf.get("STORES"))) from error
        except (StoreUnavailable, OutcomeUnknown) as error:
            raise CommandError(
                f"The store {self.alias!r} did not respond: {reason(error)}{self.changed()}"
            ) from error
        except LostRace as error:
            self.end_progress()
            raise CommandError(
                f"Lost the race for a {self.unit} {TRIES} times in a row.{self.changed()}"
            ) from error
        except KeyboardInterrupt:
            self.end_progress()
            raise CommandError(f"Interrupted. {self.so_far()}", returncode=130) from None

    @contextmanager
    def table_explained(self, sentence: str) -> Iterator[None]:
        """Turn what a table raises into an error that begins with a sentence, and says how far it
        came.
        """
        try:
            yield
        except DatabaseError as error:
            raise CommandError(f"{sentence} {error}{self.changed()}") from error


class ScanningCommand(StoreCommand):
    """A command over all records of a store, in bounded batches."""

    #: How many rows were read, and how many of them could not be.
    seen = unreadable = 0

    def add_arguments(self, parser: CommandParser) -> None:
        add_store(parser)
        parser.add_argument(
            "--batch-size",
            type=positive,
            default=1000,
            metavar="ROWS",
            help="How many are read at a time: 1000.",
        )

    def records(self, size: int) -> Iterator[Record]:
        """Yield every record, without bodies, and show progress."""
        for batch in self.store.scan(size=size):
            self.seen += len(batch.records) + batch.unreadable
            self.unreadable += batch.unreadable
            yield from batch.records
            self.progress()
        self.end_progress()

    def so_far(self) -> str:
        return f"{self.seen:,} records read in {self.per_second(self.seen)} a second)."

    def on_terminal(self) -> str:
        return f"{self.seen:,} records"


def counted(count: int, kind: str = "record") -> str:
    """Return a number of things: "1 record", "2 records"."""
    return f"{count:,} {kind}{'' if count == 1 else 's'}"
