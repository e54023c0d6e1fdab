"""Delete expired records, in batches."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ... import conf
from ...errors import LostRace, StoreUnavailable
from ...inspection.failures import MISCONFIGURED, advice, reason
from ...runtime.registry import stores
from ...stores.base import BaseStore, Purged
from ...stores.wrapper import innermost
from ..arguments import not_negative, positive

#: Tries of a batch that loses a race (a deadlock, a lock of SQLite), each after a longer pause.
TRIES = 5
#: Rows that a dry run counts without --limit.
COUNTED = 1_000_000
#: Seconds between two lines of progress without a terminal.
PACE = 5.0


class Command(BaseCommand):
    help = (
        "Delete expired records that no request holds. Each batch is a transaction of its own, so the command can be "
        "interrupted, run beside traffic, and run several times at once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--store", default="default", metavar="ALIAS", help='In IDEMPOTENCY["STORES"]; "default".')
        parser.add_argument("--batch-size", type=positive, default=1000, metavar="ROWS", help="A batch; 1000.")
        parser.add_argument("--limit", type=positive, metavar="ROWS", help="Delete no more than these; all.")
        parser.add_argument("--sleep", type=not_negative, default=0.0, metavar="SECONDS", help="Between batches; 0.")
        parser.add_argument("--dry-run", action="store_true", help="Only count, and delete nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        self.alias: str = options["store"]
        self.verbosity: int = options["verbosity"]
        self.deleted = 0
        try:
            store = stores[self.alias]
            if store.expires_natively:
                self.say(
                    f"The store {self.alias!r} ({type(innermost(store)).__name__}) deletes expired records automatically. "
                    "Nothing to purge."
                )
            elif options["dry_run"]:
                self.count(store, options["limit"])
            else:
                self.purge(store, options["batch_size"], options["limit"], options["sleep"])
        except MISCONFIGURED as error:
            raise CommandError(advice(error, self.alias, conf.get("STORES"))) from error
        except StoreUnavailable as error:
            raise CommandError(
                f"The store {self.alias!r} did not respond, or its table is not migrated: {reason(error)}\n{self.so_far()}"
            ) from error

    # ------------------------------------------------------------------------------------------------------- dry run

    def count(self, store: BaseStore, limit: int | None) -> None:
        store, most = innermost(store), limit or COUNTED
        due = store.count_due(limit=most)
        if due is None:
            raise CommandError(f"The store {self.alias!r} ({type(store).__name__}) cannot count what it would delete.")
        if due == most and limit is None:
            self.say(f"At least {due:,} records would be deleted. Counting stopped there; --limit counts further.")
        elif due:
            self.say(f"{rows(due)} would be deleted.")
        else:
            self.say("Nothing to purge.")

    # --------------------------------------------------------------------------------------------------------- purge

    def purge(self, store: BaseStore, batch_size: int, limit: int | None, pause: float) -> None:
        self.started = self.reported = time.monotonic()
        due_until = datetime.now(timezone.utc)
        since: datetime | None = None
        try:
            while limit is None or self.deleted < limit:
                asked = batch_size if limit is None else min(batch_size, limit - self.deleted)
                batch = self.batch(store, asked, since)
                self.deleted += batch.count
                since = batch.resume
                self.progress()
                # Under traffic there is always another expired record: stop at those that had expired when we began.
                if not batch.count or since is None or (batch.count < asked and since >= due_until):
                    break
                if self.deleted != limit:
                    time.sleep(pause)
        except KeyboardInterrupt:
            self.end_progress()
            raise CommandError(f"Interrupted. {self.so_far()}", returncode=130) from None
        except LostRace as error:
            self.end_progress()
            raise CommandError(f"Lost the race for a batch {TRIES} times in a row. {self.so_far()}") from error
        self.end_progress()
        self.say(self.so_far() if self.deleted else "Nothing to purge.")

    def batch(self, store: BaseStore, asked: int, since: datetime | None) -> Purged:
        for attempt in range(1, TRIES):
            try:
                return store.purge(limit=asked, since=since)
            except LostRace:
                time.sleep(0.1 * attempt)
        return store.purge(limit=asked, since=since)

    # -------------------------------------------------------------------------------------------------------- output

    def so_far(self) -> str:
        if not self.deleted:
            return "Nothing was deleted."
        seconds = max(time.monotonic() - self.started, 0.001)
        return f"{rows(self.deleted)} deleted in {seconds:,.1f} s ({self.deleted / seconds:,.0f} rows/s)."

    def progress(self) -> None:
        """Show progress: on a terminal one line, overwritten; elsewhere one every few seconds, at --verbosity 2."""
        now = time.monotonic()
        if self.verbosity > 0 and self.stderr.isatty():
            self.stderr.write(f"\r{rows(self.deleted)}", ending="")
            self.stderr.flush()
        elif self.verbosity > 1 and now - self.reported >= PACE:
            self.reported = now
            self.stderr.write(self.so_far())

    def end_progress(self) -> None:
        if self.verbosity > 0 and self.stderr.isatty() and self.deleted:
            self.stderr.write("\r\033[K", ending="")

    def say(self, sentence: str) -> None:
        if self.verbosity > 0:
            self.stdout.write(sentence)


def rows(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"
