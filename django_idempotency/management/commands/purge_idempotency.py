"""Delete expired records, in batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ...runtime.registry import stores
from ...runtime.wings import Extension, extensions
from ...stores.base import BaseStore
from ...stores.wrapper import innermost
from ..arguments import not_negative, positive
from ..scanning import StoreCommand

#: Rows that a dry run counts without --limit.
COUNTED = 1_000_000


class Command(StoreCommand):
    #: It is needed most when something is wrong, perhaps with a route that has nothing to do with it.
    requires_system_checks = ()
    help = (
        "Delete expired records that no request holds, and what the installed apps keep beside them and need no more. "
        "Each batch is a transaction of its own, so the command can be "
        "interrupted, run beside traffic, and run several times at once."
    )

    unit = "batch"
    #: What is counted in `deleted`.
    kind = "record"
    #: How many rows of other kinds were deleted before, which count towards the limit.
    spent = 0

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--store", default="default", metavar="ALIAS", help='In IDEMPOTENCY["STORES"]; "default".')
        parser.add_argument("--batch-size", type=positive, default=1000, metavar="ROWS", help="A batch; 1000.")
        parser.add_argument("--limit", type=positive, metavar="ROWS", help="Delete no more than these; all.")
        parser.add_argument("--sleep", type=not_negative, default=0.0, metavar="SECONDS", help="Between batches; 0.")
        parser.add_argument("--dry-run", action="store_true", help="Only count, and delete nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        self.alias = options["store"]
        self.verbosity: int = options["verbosity"]
        self.deleted = 0
        with self.explained():
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
            for extension in extensions():
                self.purge_beside(extension, store, options)

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
        with self.table_explained("The records cannot be purged:"):
            while limit is None or self.deleted < limit:
                asked = batch_size if limit is None else min(batch_size, limit - self.deleted)
                batch = self.patiently(partial(store.purge, limit=asked, since=since))
                self.deleted += batch.count
                since = batch.resume
                self.progress()
                # Under traffic there is always another expired record: stop at those that had expired when we began.
                if not batch.count or since is None or (batch.count < asked and since >= due_until):
                    break
                if self.deleted != limit:
                    time.sleep(pause)
        self.end_progress()
        self.say(self.so_far() if self.deleted else "Nothing to purge.")

    # --------------------------------------------------------------------------------------------- the tables of apps

    def purge_beside(self, extension: Extension, store: BaseStore, options: dict[str, Any]) -> None:
        """Delete, or count, what an app keeps beside the records."""
        with self.table_explained("A table beside the records cannot be purged. Is it migrated?"):
            found = list(extension.purging(self.alias, store))
        for rows_of in found:
            with self.table_explained(f"The {rows_of.kind}s cannot be purged. Is their table migrated?"):
                if not options["dry_run"]:
                    if self.purge_rows(rows_of.kind, rows_of.purge, options):
                        self.say(self.so_far())
                elif due := rows_of.due(limit=options["limit"] or COUNTED):
                    self.say(f"{rows(due, rows_of.kind)} would be deleted.")

    def purge_rows(self, kind: str, purge: Callable[..., int], options: dict[str, Any]) -> int:
        """Delete the rows of an app in batches, within what the limit leaves, and return how many."""
        self.spent += self.deleted
        self.kind, self.deleted = kind, 0
        self.started = self.reported = time.monotonic()
        size, limit = options["batch_size"], options["limit"]
        while (asked := size if limit is None else min(size, limit - self.spent - self.deleted)) > 0:
            if not (count := self.patiently(partial(purge, limit=asked))):
                break
            self.deleted += count
            self.progress()
            time.sleep(options["sleep"])
        self.end_progress()
        return self.deleted

    # -------------------------------------------------------------------------------------------------------- output

    def changed(self) -> str:
        return f"\n{self.so_far()}"

    def so_far(self) -> str:
        if not self.deleted:
            return "Nothing was deleted."
        seconds = max(time.monotonic() - self.started, 0.001)
        return f"{rows(self.deleted, self.kind)} deleted in {seconds:,.1f} s ({self.deleted / seconds:,.0f} rows/s)."

    def on_terminal(self) -> str:
        return rows(self.deleted, self.kind)


def rows(count: int, kind: str = "record") -> str:
    return f"{count:,} {kind}{'' if count == 1 else 's'}"
