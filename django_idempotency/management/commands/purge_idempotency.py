"""Delete expired records, in batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ...runtime.app_extensions import AppExtension, app_extensions
from ...stores.base import innermost
from ..arguments import not_negative, positive
from ..base import StoreCommand, counted

#: Rows that a dry run counts without --limit.
COUNTED = 1_000_000


class Command(StoreCommand):
    """Delete expired records that no request holds, and what the installed apps keep beside
    them and need no more. Each batch is a transaction of its own.

    when:
      From a cron job, each hour; and by hand when the table has grown. It may be
      interrupted, run beside traffic, and run several times at once. Redis and DynamoDB
      delete expired records themselves.

    examples:
      %(prog)s --dry-run
          Count what would be deleted.
      %(prog)s --store payments
          Delete in one store; each needs a line of its own in the crontab.
      %(prog)s --limit 100000 --sleep 0.1
          Delete a part, with pauses, in busy hours.

    exit status:
      0    All was done.
      1    Something could not be purged. The message says how far it came.
      2    An option is wrong. Nothing was done.
      130  It was interrupted. What it has deleted stays deleted.
    """

    unit = "batch"
    #: What is counted in `deleted`.
    kind: str
    #: How many rows of other kinds this run has deleted before, which count towards the limit.
    spent: int

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--store",
            default="default",
            metavar="ALIAS",
            help='Of IDEMPOTENCY["STORES"]: "default".',
        )
        parser.add_argument(
            "--batch-size",
            type=positive,
            default=1000,
            metavar="ROWS",
            help="How many are deleted at a time: 1000.",
        )
        parser.add_argument(
            "--limit",
            type=positive,
            metavar="ROWS",
            help="Delete no more than these. Without it, all.",
        )
        parser.add_argument(
            "--sleep",
            type=not_negative,
            default=0.0,
            metavar="SECONDS",
            help="Wait between two batches, so that others get on: 0.",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="Only count, and delete nothing."
        )

    def look(self, **options: Any) -> None:
        self.deleted = 0
        self.spent = 0
        self.kind = "record"
        if self.store.expires_natively:
            self.say(
                f"The store {self.alias!r} ({type(innermost(self.store)).__name__}) "
                "deletes expired records automatically. "
                "Nothing to purge."
            )
        else:
            with self.going_on():
                self.purge(options)
        for extension in app_extensions():
            with self.going_on():
                self.purge_beside(extension, options)
        self.require_all()

    # -------------------------------------------------------------------------------------- dry run

    def count(self, limit: int | None) -> None:
        store = innermost(self.store)
        most = limit or COUNTED
        due = store.count_due(limit=most)
        if due is None:
            raise CommandError(
                f"The store {self.alias!r} ({type(store).__name__}) cannot count what it "
                "would delete."
            )
        if due == most and limit is None:
            self.say(
                f"At least {due:,} records would be deleted. Counting stopped there; "
                "--limit counts further."
            )
        else:
            self.say(f"{counted(due)} would be deleted." if due else "Nothing to purge.")

    # ---------------------------------------------------------------------------------------- purge

    def purge(self, options: dict[str, Any]) -> None:
        if options["dry_run"]:
            self.count(options["limit"])
            return
        due_until = datetime.now(timezone.utc)
        since: datetime | None = None

        def delete(limit: int) -> tuple[int, bool]:
            nonlocal since
            batch = self.store.purge(limit=limit, since=since)
            since = batch.resume
            # Under traffic there is always another expired record: stop at those that had expired
            # when we began.
            return batch.count, since is not None and (batch.count >= limit or since < due_until)

        with self.table_explained("The records cannot be purged:"):
            self.delete_batches(delete, options)
        self.say(self.so_far() if self.deleted else "Nothing to purge.")

    def delete_batches(
        self, delete: Callable[[int], tuple[int, bool]], options: dict[str, Any]
    ) -> None:
        """Delete within what the limit leaves.

        `delete(limit)` returns how many it has deleted, and if there may be more.
        """
        size = options["batch_size"]
        limit = options["limit"]
        more = True
        while (
            more
            and (asked := size if limit is None else min(size, limit - self.spent - self.deleted))
            > 0
        ):
            if self.deleted:
                time.sleep(options["sleep"])
            count, more = self.patiently(partial(delete, asked))
            self.deleted += count
            more = more and count > 0
            if self.deleted:
                self.progress()
        self.end_progress()

    # --------------------------------------------------------------------------- the tables of apps

    def purge_beside(self, extension: AppExtension, options: dict[str, Any]) -> None:
        """Delete, or count, what an app keeps beside the records."""
        with self.table_explained("A table beside the records cannot be purged. Is it migrated?"):
            found = list(extension.purging(self.alias, self.store))
        for rows_of in found:
            with (
                self.going_on(),
                self.table_explained(
                    f"The {rows_of.kind}s cannot be purged. Is their table migrated?"
                ),
            ):
                if not options["dry_run"]:
                    if self.purge_rows(rows_of.kind, rows_of.purge, options):
                        self.say(self.so_far())
                elif due := rows_of.due(limit=options["limit"] or COUNTED):
                    self.say(f"{counted(due, rows_of.kind)} would be deleted.")

    def purge_rows(self, kind: str, purge: Callable[..., int], options: dict[str, Any]) -> int:
        """Delete the rows of an app, and return how many."""
        self.spent += self.deleted
        self.kind = kind
        self.deleted = 0
        self.begin(options)
        self.delete_batches(lambda limit: (purge(limit=limit), True), options)
        return self.deleted

    # --------------------------------------------------------------------------------------- output

    def changed(self) -> str:
        return f"\n{self.so_far()}"

    def so_far(self) -> str:
        if not self.deleted:
            return "Nothing was deleted."
        return (
            f"{counted(self.deleted, self.kind)} deleted in {self.per_second(self.deleted)} "
            "rows/s)."
        )

    def on_terminal(self) -> str:
        return counted(self.deleted, self.kind)
