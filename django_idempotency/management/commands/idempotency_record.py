"""List records of any store; or show one, as the admin does, and release, expire or erase it."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import timedelta
from operator import attrgetter
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ObjectDoesNotExist
from django.core.management.base import CommandError, CommandParser

from ... import conf
from ...core import rules
from ...core.at_rest import HASHED
from ...core.failures import failure_of, response_of
from ...core.hashing import operation_ref
from ...core.interventions import Intervention
from ...core.records import Record, Status
from ...errors import (
    IdempotencyError,
    LostRace,
    OperationUnknown,
    OutcomeUnknown,
    RecordUnreadable,
    SecretUnknown,
    StoreUnavailable,
)
from ...inspection import redaction
from ...inspection.failures import reason
from ...inspection.interventions import VERBS, Verb, intervene
from ...inspection.status import STATUSES, age, display_status, next_answer, status_of
from ...inspection.terminal import lines, plain, span
from ...runtime.derivation import derived_by
from ...scopes import user_of
from ...stores.base import layers
from ..arguments import Sought, add_record, duration, positive, sought
from ..base import ScanningCommand
from ..output import operator
from ..parts import add_options, done_by_part

#: The table: the head of a column, its width, and what it shows of a record.
_COLUMNS: tuple[tuple[str, int, Callable[[Record], str]], ...] = (
    ("STATUS", 10, status_of),
    ("AGE", 12, lambda record: span(timedelta(seconds=age(record)))),
    ("TRY", 4, lambda record: str(record.attempt)),
    ("SCOPE", 28, lambda record: record.scope),
    ("KEY", 38, lambda record: record.key),
    ("REQUEST", 0, lambda record: f"{record.method} {redaction.text(record.path)}"),
)


class Command(ScanningCommand):
    """Show the record of one idempotency key, and what a request with it would get now.
    --release, --expire and --erase change it, unless a request holds it. Without a scope,
    list the records of the store, the newest first, which reads all of them in bounded
    batches.

    when:
      A log line, a problem document or a customer names a key, and you want to know whether
      its work was done. Type --release only once you know that it was not.

    examples:
      %(prog)s 3f6c9a27d1e8
          Show the record of the key_hash of a log line.
      %(prog)s op_…
          Show that of the operation_ref of a problem document.
      %(prog)s user:auth.user:7 order-17
          Show that of a scope and a key, both exact.
      %(prog)s --status abandoned --older-than 5m
          List what no retry has taken over.
      %(prog)s op_… --release --reason "not at the provider"
          Let the next retry run the work.

    exit status:
      0    All was done.
      1    There is no such record, a request holds it, or the store did not respond.
      2    An option is wrong. Nothing was done.
    """

    #: How many records the options ask for.
    found = 0

    def add_arguments(self, parser: CommandParser) -> None:
        one = parser.add_argument_group("one record")
        add_record(one, nargs="?")
        either = one.add_mutually_exclusive_group()
        for verb in VERBS.values():
            either.add_argument(f"--{verb.name}", action="store_true", help=verb.help)
        either.add_argument(
            "--derive",
            metavar="LABEL",
            help="Print only the key that derive(LABEL) gave to a provider, to look the effect "
            "up there.",
        )
        one.add_argument(
            "--reason", default="", metavar="TEXT", help="Why it is changed, for the audit trail."
        )
        one.add_argument(
            "--no-body", action="store_true", help="Leave out the body of the response."
        )
        some = parser.add_argument_group("a list of records")
        either = some.add_mutually_exclusive_group()
        either.add_argument(
            "--running", action="store_true", help="Only those whose work has not ended."
        )
        either.add_argument(
            "--status", choices=STATUSES, help="Only those with this status, as the admin shows it."
        )
        some.add_argument(
            "--older-than",
            type=duration,
            default=0.0,
            metavar="SPAN",
            help="First claimed before 90s, 5m, 2h or 1d.",
        )
        some.add_argument(
            "--route", metavar="TEXT", help="Only paths, or names of functions, that contain this."
        )
        some.add_argument(
            "--user", metavar="NAME", help="Only this user's: by name, or by primary key."
        )
        some.add_argument(
            "--scope", dest="within", metavar="TEXT", help="Only scopes that contain this."
        )
        some.add_argument(
            "--limit",
            type=positive,
            default=100,
            metavar="ROWS",
            help="Only the newest of them, by their first claim: 100.",
        )
        some.add_argument(
            "--format",
            choices=("table", "json"),
            default="table",
            help="A table; or json, a line each.",
        )
        super().add_arguments(parser)
        add_options("idempotency_record", parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if not done_by_part(self, "idempotency_record", options):
            super().handle(*args, **options)

    def look(self, **options: Any) -> None:
        verbs = [verb for verb in VERBS.values() if options[verb.name]]
        if options["scope"] is None:
            if verbs or options["derive"] is not None:
                raise CommandError("Which record? Type its scope and its key, or an operation_ref.")
            self.list(options)
            return
        if len(verbs) > 1:  # of call_command(): the command line refuses that itself
            raise CommandError("Choose one of --release, --expire and --erase.")
        found = sought(self.alias, options["scope"], options["key"], realm=options["realm"])
        try:
            if verbs:
                for line in self.changed_by_hand(found, verbs[0], options):
                    self.stdout.write(line)
            elif options["derive"] is not None:
                self.derive(found, options["derive"])
            else:
                self.show(found, options)
        except RecordUnreadable as error:
            raise CommandError(
                f"The record {found.id} in the store {found.alias!r} cannot be read: it is "
                "damaged, or was written by a later "
                "version. No request with this key runs. Install that version, or delete "
                "the record in the store."
            ) from error

    # ----------------------------------------------------------------------------------------- list

    def list(self, options: dict[str, Any]) -> None:
        as_json = options["format"] == "json"
        matching = self.matching(options)
        newest = heapq.nlargest(options["limit"], matching, key=attrgetter("created_at", "id"))
        if newest and not as_json:
            self.stdout.write(" ".join(f"{name:<{width}}" for name, width, _ in _COLUMNS).rstrip())
        for record in newest:
            self.stdout.write(json.dumps(as_dict(record)) if as_json else as_line(record))
        if not newest:
            self.stderr.write(f"None of {self.seen:,} records.")
        elif self.found > len(newest):
            self.stderr.write(f"The newest {len(newest):,} of {self.found:,}; --limit shows more.")

    def matching(self, options: dict[str, Any]) -> Iterator[Record]:
        """Yield the records that are asked for, and count them."""
        users = None if options["user"] is None else users_of(options["user"])
        for record in self.records(options["batch_size"]):
            if wanted(record, options, users=users):
                self.found += 1
                yield record

    # ----------------------------------------------------------------------------------------- show

    def show(self, found: Sought, options: dict[str, Any]) -> None:
        record = found.get()
        store = found.store
        shown = lines(
            record,
            store=f"{found.alias} ({' → '.join(type(layer).__name__ for layer in layers(store))})",
            reference=operation_ref(conf.derive_secret(), record.id),
            purged=not store.expires_natively,
            body_allowed=not options["no_body"],
            repeats=store.repeats(record.id) if conf.get("COUNT_REPLAYS") else None,
        )
        for line in shown:
            self.stdout.write(line)

    def derive(self, found: Sought, label: str) -> None:
        record = found.get()
        if record.scope.startswith(HASHED):
            if not found.key:
                raise CommandError(
                    "The record has hashes of its scope and its key. Type both, instead of "
                    "the operation_ref."
                )
            record = record._replace(scope=found.scope, key=found.key)
        try:
            self.stdout.write(derived_by(record, label))
            if rules.expired(record):
                # In `atomic` a new life is written with its settle: one that crashed has left the
                # record as it was.
                self.stderr.write(
                    "The record has expired. The same request, if it has come again since "
                    "and was abandoned, derived another key:\n"
                    + derived_by(record, label, next_life=True)
                )
        except OperationUnknown as error:
            raise CommandError(
                "The record is free for another body, and each body derives a key of its "
                "own: the log has the requests."
            ) from error
        except SecretUnknown as error:
            raise CommandError(str(error)) from error

    # --------------------------------------------------------------------------------------- change

    def changed_by_hand(self, found: Sought, verb: Verb, options: dict[str, Any]) -> Iterator[str]:
        """Change a record, and yield what has happened."""
        try:
            ended, record = intervene(
                verb,
                found.store,
                found.id,
                alias=found.alias,
                actor=operator(),
                reason=options["reason"],
            )
        except LostRace as error:
            raise CommandError(
                "Another process changed the record first, and nothing was done. Try again."
            ) from error
        except (StoreUnavailable, OutcomeUnknown) as error:
            raise CommandError(
                f"The store {found.alias!r} did not respond: {reason(error)}\nIt is "
                "unknown whether it was "
                f"{verb.done.lower()}. Type the command again; it reports if there is "
                "nothing left to do."
            ) from error
        match ended:
            case Intervention.DONE if record is not None:
                path = plain(redaction.text(record.path))
                was = (
                    f"It was {display_status(record).label}, attempt {record.attempt}, "
                    f"{record.method} {path}"
                )
                yield f"{verb.done}. {was}."
            case Intervention.BUSY:
                raise CommandError(
                    "Refused: a request with its key is running, and holds the record. "
                    "Nothing was changed. "
                    f"{lease(found)}Try again later."
                )
            case Intervention.GONE:
                raise found.unknown()
            case _:
                yield (
                    f"{verb.already % {'status': display_status(found.get()).label}}. Nothing "
                    "was changed."
                )
        with suppress(IdempotencyError):  # the store may not respond any more
            left = found.store.get(found.id)
            purged = not found.store.expires_natively
            gets = (
                "runs the work as the first one."
                if left is None
                else next_answer(left, purged=purged)
            )
            yield f"A request with this key now {gets}"


def lease(found: Sought) -> str:
    """Return a sentence about when the lease ends; "" if there is none."""
    record = found.store.get(found.id)
    if record is None or not rules.leased(record):
        return ""
    return (
        f"Its lease ends in {span(record.lease_until - record.read_at)}, unless its owner is "
        "still alive and renews it. "
    )


def wanted(
    record: Record, options: dict[str, Any], *, users: Collection[tuple[str, str]] | None
) -> bool:
    """Is a record one of those that the options ask for?"""
    if options["running"] and record.status is not Status.RUNNING:
        return False
    if options["status"] is not None and status_of(record) != options["status"]:
        return False
    if age(record) < options["older_than"] or (options["within"] or "") not in record.scope:
        return False
    if users is not None and user_of(record.scope) not in users:
        return False
    return (options["route"] or "") in record.path


def users_of(user: str) -> Collection[tuple[str, str]]:
    """Return the users that a text may mean: the one with this name, and the one with this primary
    key.
    """
    model = get_user_model()
    keys = [user]
    with suppress(ObjectDoesNotExist):
        # Documented.
        keys.append(str(model._default_manager.get_by_natural_key(user).pk))  # noqa: SLF001
    return {(model._meta.label_lower, key) for key in keys}


def as_line(record: Record) -> str:
    return " ".join(f"{plain(show(record)):<{width}}" for _, width, show in _COLUMNS).rstrip()


def as_dict(record: Record) -> dict[str, Any]:
    response = response_of(record)
    failure = failure_of(record)
    return {
        "id": str(record.id),
        "status": status_of(record),
        "scope": record.scope,
        "key": record.key,
        "method": record.method,
        "path": redaction.text(record.path),
        "attempt": record.attempt,
        "guarantee": record.guarantee.value,
        "age_seconds": round(age(record), 3),
        "created_at": record.created_at.isoformat(),
        "lease_until": record.lease_until.isoformat(),
        "response_status": None if response is None else response.status,
        "failed_with": None if failure is None else failure.error or str(failure.status),
        "request_id": rules.original_request(record),
        "operation_ref": operation_ref(conf.derive_secret(), record.id),
    }
