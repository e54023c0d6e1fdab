"""List what guards each route of the project."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ... import conf
from ...checks.guards import OPEN, GuardKind, Row, rows
from ...checks.settings import check_settings

_HEAD = ("METHODS", "PATH", "GUARD", "TERMS", "VIEW")


class Command(BaseCommand):
    #: It is needed most when something is wrong, perhaps with a route that has nothing to do with it.
    requires_system_checks = ()
    help = (
        "Show every route of the URLconf with the guard of its unsafe methods, its terms, and why one is not guarded."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", nargs="?", default="", help="Only routes whose path contains this.")
        parser.add_argument(
            "--unguarded", action="store_true", help="Only routes where a keyed request runs unguarded, or raises."
        )
        parser.add_argument(
            "--fail-unguarded",
            action="store_true",
            help="Exit with status 1 if any route is neither guarded nor exempt.",
        )
        parser.add_argument("--json", action="store_true", help="Write JSON.")

    def handle(self, **options: Any) -> None:
        if wrong := check_settings():
            raise CommandError(f"{wrong[0].msg} {wrong[0].hint}")
        found = [row for row in rows() if options["path"] in row.path]
        unguarded = [row for row in found if row.guard in OPEN]
        shown = unguarded if options["unguarded"] else found
        self.stdout.write(as_json(shown) if options["json"] else as_table(shown))
        if options["fail_unguarded"] and unguarded:
            raise CommandError(f"{len(unguarded)} of {len(found)} are not guarded.")


def as_json(found: list[Row]) -> str:
    """Return the rows as a JSON array of objects, with the members of `Row`."""
    return json.dumps([{**vars(row), "guard": row.guard.value} for row in found], indent=2)


def as_table(found: list[Row]) -> str:
    """Return the rows as aligned columns. Each reason gets a line of its own."""
    lines = [_HEAD, *map(_cells, found)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    written = []
    for line, row in zip(lines, [None, *found], strict=True):
        written.append("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        if row is not None and row.why:
            written.append(f"    {row.why}")
    if any(row.guard is GuardKind.MIDDLEWARE for row in found) and conf.get("SCOPE") is None:
        written += ["", "The middleware guards requests of authenticated users: SCOPE is not set."]
    return "\n".join(written)


def _cells(row: Row) -> tuple[str, ...]:
    return ",".join(row.methods) or "-", row.path, row.guard.value, _terms(row.terms) or "-", row.view


def _terms(terms: dict[str, Any]) -> str:
    guarantee = [terms["guarantee"]] if terms else []
    store = [f"store={terms['store']}"] if terms.get("store", "default") != "default" else []
    required = {True: ["required"], "warn": ["required=warn"]}.get(terms.get("required", False), [])
    others = [f"{name}={value}" for name, value in terms.items() if name not in ("guarantee", "store", "required")]
    return " ".join([*guarantee, *store, *required, *others])
