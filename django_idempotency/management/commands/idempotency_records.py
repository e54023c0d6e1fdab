"""List records of any store."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ObjectDoesNotExist
from django.core.management.base import CommandParser

from ... import conf
from ...core.failures import failure_of, response_of
from ...core.hashing import operation_ref
from ...core.records import Record, Status
from ...core.scope_names import user_of
from ...inspection import redaction
from ...inspection.stats import STATUSES, age, status_of
from ...inspection.terminal import plain, span
from ..arguments import duration, positive
from ..scanning import ScanningCommand

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
    #: It is needed most when something is wrong, perhaps with a route that has nothing to do with it.
    requires_system_checks = ()
    help = (
        "List records of a store: those that are running, held, of a route or of a user. Reads all records, in bounded "
        "batches, until it has found enough. manage.py idempotency_record shows one of them."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        either = parser.add_mutually_exclusive_group()
        either.add_argument("--running", action="store_true", help="Only those whose work has not ended.")
        either.add_argument("--status", choices=STATUSES, help="Only those with this status, as the admin shows it.")
        parser.add_argument(
            "--older-than", type=duration, default=0.0, metavar="SPAN", help="First claimed before 90s, 5m, 2h or 1d."
        )
        parser.add_argument("--route", metavar="TEXT", help="Only paths, or names of functions, that contain this.")
        parser.add_argument("--user", metavar="NAME", help="Only this user's: by name, or by primary key.")
        parser.add_argument("--scope", metavar="TEXT", help="Only scopes that contain this.")
        parser.add_argument("--limit", type=positive, default=100, metavar="ROWS", help="No more than these; 100.")
        parser.add_argument("--format", choices=("table", "json"), default="table", help="table; or json, a line each.")

    def look(self, **options: Any) -> None:
        as_json = options["format"] == "json"
        users = None if options["user"] is None else users_of(options["user"])
        found = 0
        for record in self.records(options["batch_size"]):
            if not wanted(record, users=users, **options):
                continue
            if not found and not as_json:
                self.end_progress()
                self.stdout.write(" ".join(f"{name:<{width}}" for name, width, _ in _COLUMNS).rstrip())
            found += 1
            self.stdout.write(json.dumps(as_dict(record)) if as_json else as_line(record))
            if found == options["limit"]:
                self.end_progress()
                self.stderr.write(f"Stopped after {found:,} records; --limit shows more.")
                return
        if not found:
            self.stderr.write(f"None of {self.seen:,} records.")


def wanted(record: Record, *, users: Collection[tuple[str, str]] | None, **options: Any) -> bool:
    """Is a record one of those that the options ask for?"""
    if options["running"] and record.status is not Status.RUNNING:
        return False
    if options["status"] is not None and status_of(record) != options["status"]:
        return False
    if age(record) < options["older_than"] or (options["scope"] or "") not in record.scope:
        return False
    if users is not None and user_of(record.scope) not in users:
        return False
    return (options["route"] or "") in record.path


def users_of(user: str) -> Collection[tuple[str, str]]:
    """Return the users that a text may mean: the one with this name, and the one with this primary key."""
    model = get_user_model()
    keys = [user]
    with suppress(ObjectDoesNotExist):
        keys.append(str(model._default_manager.get_by_natural_key(user).pk))  # noqa: SLF001 - documented
    return {(model._meta.label_lower, key) for key in keys}


def as_line(record: Record) -> str:
    return " ".join(f"{plain(show(record)):<{width}}" for _, width, show in _COLUMNS).rstrip()


def as_dict(record: Record) -> dict[str, Any]:
    response, failure = response_of(record), failure_of(record)
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
        "request_id": record.original_request,
        "operation_ref": operation_ref(conf.derive_secret(), record.id),
    }
