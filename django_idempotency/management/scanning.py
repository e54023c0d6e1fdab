"""What the commands on a whole store share: errors in words, patience and progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from .. import conf
from ..core.records import Record
from ..errors import LostRace, StoreUnavailable
from ..inspection.failures import MISCONFIGURED, advice, reason
from ..runtime.registry import stores
from ..stores.base import BaseStore
from .arguments import positive
from .progress import ProgressCommand

#: Tries of a change that loses a race.
TRIES = 5
T = TypeVar("T")


class StoreCommand(ProgressCommand):
    """A command on a store, and on what apps keep beside it."""

    alias: str
    #: What a race is about.
    unit = "record"

    def changed(self) -> str:
        """Return what a command that changes something adds to an error: how far it came."""
        return ""

    def patiently(self, act: Callable[[], T]) -> T:
        """Call it again if it loses a race (a deadlock, a lock of SQLite), each time after a longer pause."""
        for attempt in range(1, TRIES):
            try:
                return act()
            except LostRace:
                time.sleep(0.1 * attempt)
        return act()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what the store raises, and an interruption, into an error that says so, and how far it came."""
        try:
            yield
        except MISCONFIGURED as error:
            raise CommandError(advice(error, self.alias, conf.get("STORES"))) from error
        except StoreUnavailable as error:
            raise CommandError(
                f"The store {self.alias!r} did not respond, or its table is not migrated: {reason(error)}{self.changed()}"
            ) from error
        except LostRace as error:
            self.end_progress()
            raise CommandError(f"Lost the race for a {self.unit} {TRIES} times in a row.{self.changed()}") from error
        except KeyboardInterrupt:
            self.end_progress()
            raise CommandError(f"Interrupted. {self.so_far()}", returncode=130) from None

    @contextmanager
    def table_explained(self, sentence: str) -> Iterator[None]:
        """Turn what a table raises into an error that begins with a sentence, and says how far it came."""
        try:
            yield
        except DatabaseError as error:
            raise CommandError(f"{sentence} {error}{self.changed()}") from error


class ScanningCommand(StoreCommand):
    """A command over all records of a store, in bounded batches."""

    store: BaseStore
    #: How many rows were read, and how many of them could not be.
    seen = unreadable = 0

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--store", metavar="ALIAS", help='In IDEMPOTENCY["STORES"]; that of IDEMPOTENCY["STORE"].')
        parser.add_argument("--batch-size", type=positive, default=1000, metavar="ROWS", help="A request; 1000.")

    def handle(self, *args: Any, **options: Any) -> None:
        self.alias = options["store"] or conf.get("STORE")
        self.verbosity: int = options["verbosity"]
        self.started = self.reported = time.monotonic()
        with self.explained():
            self.store = stores[self.alias]
            self.look(**options)

    def look(self, **options: Any) -> None:
        """Do the work."""
        raise NotImplementedError

    def records(self, size: int) -> Iterator[Record]:
        """Yield every record, without bodies, and show progress."""
        for batch in self.store.scan(size=size):
            self.seen += len(batch.records) + batch.unreadable
            self.unreadable += batch.unreadable
            yield from batch.records
            self.progress()
        self.end_progress()

    def so_far(self) -> str:
        seconds = max(time.monotonic() - self.started, 0.001)
        return f"{self.seen:,} records read in {seconds:,.1f} s ({self.seen / seconds:,.0f} a second)."

    def on_terminal(self) -> str:
        return f"{self.seen:,} records"
