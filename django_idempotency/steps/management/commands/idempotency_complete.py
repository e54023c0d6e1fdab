"""Finish or undo operations that died between two steps. Several may run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, router
from django.utils.connection import ConnectionDoesNotExist

from ....functions.completing import finish
from ....management.arguments import duration, positive
from ...completing import Completed, Looked, complete, due
from ...models import Step

#: The most operations that are listed.
MOST_LINES = 50


class Command(BaseCommand):
    help = (
        "Finish operations that died between two steps: call guarded functions again, and continue undos that broke off or "
        "failed. With --undo, give up on those that only a retry of their client could finish. Bounded, and several may run "
        "at once. The exit status is 1 if an operation could not be completed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--older-than",
            type=duration,
            default=300.0,
            metavar="TIME",
            help="Only operations whose first step, or whose giving up, is this long ago; 5m.",
        )
        parser.add_argument("--limit", type=positive, default=1000, metavar="OPERATIONS", help="At most these; 1000.")
        parser.add_argument("--using", metavar="ALIAS", help="In DATABASES; where steps are written by default.")
        parser.add_argument(
            "--undo", action="store_true", help="Undo the steps of views whose client has not sent its request again."
        )
        parser.add_argument("--dry-run", action="store_true", help="Only list what is due.")

    def handle(self, *args: Any, **options: Any) -> None:
        self.verbosity: int = options["verbosity"]
        using, size = options["using"] or router.db_for_write(Step), 100
        self.counted, self.listed = Counter[Completed](), 0
        terms = {"older_than": options["older_than"]}
        try:
            if options["dry_run"]:
                self.list(due(using, limit=options["limit"], take=False, **terms))
                return
            left = options["limit"]
            while left and (rows := due(using, limit=min(size, left), **terms)):
                left -= len(rows)
                for looked in complete(rows, using=using, undo=options["undo"], finish=finish):
                    self.counted[looked.became] += 1
                    self.line(looked)
        except (DatabaseError, ConnectionDoesNotExist) as error:
            raise CommandError(
                f"The steps cannot be read. Is their table migrated? {error}\n{self.so_far()}"
            ) from error
        except KeyboardInterrupt:
            raise CommandError(f"Interrupted. {self.so_far()}", returncode=130) from None
        if self.verbosity:
            self.stdout.write(self.so_far())
        if self.counted[Completed.FAILED]:
            raise CommandError("Some operations could not be completed. They are tried again.")

    def list(self, rows: list[Step]) -> None:
        for row in rows[:MOST_LINES]:
            self.stdout.write(f"{row.created_at:%Y-%m-%d %H:%M:%S}Z  {row.record}  {row.name or 'given up'}")
        self.stdout.write(f"{len(rows):,} operations are due.")

    def line(self, looked: Looked) -> None:
        """Say what became of an operation, unless it is what usually does."""
        usual = looked.became in (Completed.ENDED, Completed.RUNNING) or (
            looked.became is Completed.WAITING and not looked.reason
        )
        if self.verbosity > 1 or (self.verbosity and not usual and self.listed < MOST_LINES):
            self.listed += 1
            reason = f": {looked.reason}" if looked.reason else ""
            self.stdout.write(f"{looked.step.record}  {looked.became.value}{reason}")

    def so_far(self) -> str:
        done = [f"{count:,} {became.value}" for became, count in self.counted.items()]
        return f"{', '.join(done)}." if done else "Nothing to complete."
