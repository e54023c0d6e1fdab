"""Finish or undo operations that died between two steps, or undo one by hand. Several may run."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, router
from django.utils.connection import ConnectionDoesNotExist

from ... import conf
from ...api import Record, seconds
from ...core.hashing import record_of_ref
from ...core.interventions import Intervention
from ...errors import IdempotencyError
from ...instrumentation.trail import trail
from ...management.arguments import positive
from ...management.output import operator
from ...management.parts import HelpedCommand
from ...runtime.registry import stores
from .completing import Completed, Looked, complete, due, watched
from .intervening import newest_of, undo_by_hand
from .journal import database_of
from .models import Step

logger = logging.getLogger("django_idempotency")

#: The most operations that are listed.
MOST_LINES = 50


class Operations(HelpedCommand):
    """Finish operations that died between two steps. It calls guarded functions again,
    continues undos that broke off or failed, and lists what only a retry of its client
    could finish. With --undo REF it gives up one that is held or was abandoned.

    when:
      From a cron job; and by hand when the log has undo_failed, or a person has found out
      how far a held operation came. Several may run at once.

    examples:
      %(prog)s --dry-run
          List what is due, and change nothing.
      %(prog)s
          Finish what is due, at most 1,000 operations.
      %(prog)s --undo op_… --reason "refunded by hand"
          Undo one operation, and say why in the trail.

    exit status:
      0    All was done.
      1    An operation could not be completed. It is tried again the next time.
      2    An option is wrong. Nothing was done.
    """

    requires_system_checks = "__all__"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--limit",
            type=positive,
            default=1000,
            metavar="OPERATIONS",
            help="At most these; 1000.",
        )
        parser.add_argument(
            "--using", metavar="ALIAS", help="In DATABASES; where steps are written by default."
        )
        parser.add_argument(
            "--undo",
            metavar="REF",
            help="Undo the steps of one operation: the operation_ref of a problem document, or "
            "the id of a record.",
        )
        parser.add_argument(
            "--reason", default="", metavar="TEXT", help="Why one is undone, for the audit trail."
        )
        parser.add_argument("--dry-run", action="store_true", help="Only list what is due.")

    def handle(self, *args: Any, **options: Any) -> None:
        self.verbosity: int = options["verbosity"]
        if options["undo"] is not None:
            self.undo(options["undo"], options)
            return
        if options["reason"]:
            raise CommandError(
                "--reason is for --undo REF: type the REF of one operation. Nothing was changed."
            )
        using = options["using"] or router.db_for_write(Step)
        size = 100
        self.counted = Counter[Completed]()
        self.listed = 0
        try:
            if options["dry_run"]:
                self.list(due(using, limit=options["limit"], take=False))
                return
            left = options["limit"]
            while left and (rows := due(using, limit=min(size, left))):
                left -= len(rows)
                for looked in complete(rows, using=using):
                    self.counted[looked.became] += 1
                    self.line(looked)
        except (DatabaseError, ConnectionDoesNotExist) as error:
            raise CommandError(
                f"The steps cannot be read. Is their table migrated? {error}\n{self.so_far()}"
            ) from error
        except KeyboardInterrupt:
            raise CommandError(f"Interrupted. {self.so_far()}", returncode=130) from None
        if self.verbosity:
            self.stdout.write(self.so_far() if self.counted else nothing(watched(using)))
        if self.counted[Completed.FAILED]:
            raise CommandError("Some operations could not be completed. They are tried again.")

    # -------------------------------------------------------------------------------------- by hand

    def undo(self, ref: str, options: dict[str, Any]) -> None:
        """Undo one operation."""
        if options["dry_run"]:
            raise CommandError(
                "--undo REF undoes it, and --dry-run does nothing: type one of them."
            )
        record_id = named(ref)
        reason = options["reason"]
        try:
            found = newest(record_id, options["using"])
            if found is None:
                raise CommandError(f"There is no step of the record {record_id}.")
            step, alias = found
            store = stores.outermost(stores[step.store])

            def audit(record: Record) -> None:
                trail.intervened("undone_by_hand", record, actor=operator(), reason=reason)

            undone = undo_by_hand(
                store, record_id, using=alias, audit=audit, ttl=seconds(conf.get("TTL"))
            )
        except (
            ImproperlyConfigured,
            ConnectionDoesNotExist,
            DatabaseError,
            IdempotencyError,
        ) as error:
            raise CommandError(
                f"It cannot be undone now: {type(error).__name__}: {error}"
            ) from error
        if undone.outcome is Intervention.GONE:
            raise CommandError(f"There is no step of the record {record_id} any more.")
        if undone.outcome is Intervention.BUSY:
            raise CommandError(
                "Refused: a request with its key is running, a process is undoing it, or "
                "another person was faster. Nothing "
                "was undone. Try again later."
            )
        if undone.outcome is not Intervention.DONE:
            self.stdout.write("It has ended, or is undone. Nothing was changed.")
            return
        facts = {
            "event": "undone_by_hand",
            "user": operator(),
            "id": str(record_id),
            "reason": reason,
        }
        logger.warning(
            "Undone by hand, by %s: record %s.",
            facts["user"],
            facts["id"],
            extra={"idempotency": facts},
        )
        for name in undone.doubtful:
            self.stdout.write(
                f"Look at: {name}. It broke off, and has no undo: nobody knows whether it "
                "had its effect."
            )
        if undone.failed:
            raise CommandError(
                f"Given up, and not all is undone yet. It is tried again. {undone.failed}"
            )
        self.stdout.write("Undone.")

    # ---------------------------------------------------------------------------------- what is due

    def list(self, rows: list[Step]) -> None:
        for row in rows[:MOST_LINES]:
            self.stdout.write(
                f"{row.created_at:%Y-%m-%d %H:%M:%S}Z  {row.record}  {row.name or 'given up'}"
            )
        self.stdout.write(
            "1 operation is due." if len(rows) == 1 else f"{len(rows):,} operations are due."
        )

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


def nothing(left: int) -> str:
    """Say that nothing is due, and how many operations are not known to have ended."""
    if not left:
        return "Nothing to complete."
    subject = "1 operation is" if left == 1 else f"{left:,} operations are"
    return (
        f"Nothing to complete now. {subject} looked at later: what was looked at rests for "
        "five minutes."
    )


def named(ref: str) -> UUID:
    """Return the id of the record that an operator has typed. Raises `CommandError`."""
    if not ref:
        raise CommandError(
            "--undo has an empty REF: is a variable of the shell empty? Nothing was changed."
        )
    with suppress(ValueError):
        return UUID(ref)
    found = record_of_ref(conf.derive_secrets(), ref)
    if found is None:
        raise CommandError(
            f"{ref!r} is neither the id of a record nor an operation_ref that a secret of "
            "this project has signed."
        )
    return found


def newest(record_id: UUID, using: str | None) -> tuple[Step, str] | None:
    """Return the newest step of a record, and the database that has it: `using`, or any that has
    steps of a store.
    """
    for alias in (
        [using]
        if using
        else dict.fromkeys(database_of(stores[each]) for each in conf.get("STORES"))
    ):
        step = newest_of(record_id, alias)
        if step is not None:
            return step, alias
    return None
