"""List what guards each route of the project."""

from __future__ import annotations

import json
import sys
import textwrap
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ... import conf
from ...checks.guards import OPEN, GuardKind, Row, rows
from ...checks.settings import check_settings
from ...checks.urlconf import is_of_admin
from ...core.policy import DURATIONS
from ...http.markers import UNSAFE_HANDLERS
from ...inspection.terminal import span
from ..parts import HelpedCommand, add_options, done_by_part

#: Columns of a terminal. Only a path or a name that is longer goes past them.
_WIDTH = 100
_INDENT = " " * 24
#: The page of the docs that has what no check decides.
CHECKLIST = "docs/how-to/checklist.md"
#: The terms that have words of their own.
_ALWAYS = ("guarantee", "store", "required")


class Command(HelpedCommand):
    """Show every route of the URLconf with the guard of its unsafe methods, its terms, and why
    one is not guarded.

    when:
      A retry has run twice, or a replay was refused: the list says what guards the route.
      In CI, so that no new route is left out.

    examples:
      %(prog)s charges
          Show the routes whose path contains that.
      %(prog)s --unguarded
          Show where a keyed request runs unguarded, or raises.
      %(prog)s --fail-unguarded
          Fail in CI if there is one.

    exit status:
      0    All was done.
      1    With --fail-unguarded: a route is not guarded. Or the settings are wrong.
      2    An option is wrong. Nothing was done.
    """

    #: It is needed most when something is wrong, perhaps with a route that has nothing to do with
    #: it.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "path", nargs="?", default="", help="Only routes whose path contains this."
        )
        parser.add_argument(
            "--unguarded",
            action="store_true",
            help="Only routes where a keyed request runs unguarded, or raises.",
        )
        parser.add_argument(
            "--fail-unguarded",
            action="store_true",
            help="Exit with status 1 if any route is neither guarded nor exempt, by "
            "@idempotency_exempt or EXEMPT.",
        )
        parser.add_argument("--json", action="store_true", help="Write JSON.")
        add_options("idempotency_routes", parser)

    def handle(self, **options: Any) -> None:
        wrong = check_settings()
        if wrong:
            raise CommandError(f"{wrong[0].msg} {wrong[0].hint}")
        if done_by_part(self, "idempotency_routes", options):
            return
        asked = [row for row in rows() if options["path"] in row.path]
        found = sorted(
            (row for row in asked if options["path"] or not is_of_admin(row.callback)),
            key=_is_installed,
        )
        unguarded = [row for row in found if row.guard in OPEN]
        shown = unguarded if options["unguarded"] else found
        self.stdout.write(as_json(shown) if options["json"] else as_table(shown))
        if not options["json"]:
            left = len(asked) - len(found)
            if left:
                self.stdout.write(
                    f"\nDjango's admin is left out ({left} routes); a path shows it: "
                    "idempotency_routes admin"
                )
            self.stdout.write(f"\nWhat to look at before production: {CHECKLIST}")
        if options["fail_unguarded"] and unguarded:
            raise CommandError(f"{len(unguarded)} of {len(found)} are not guarded.")


def _is_installed(row: Row) -> bool:
    """Is the view another package's, so that it comes after the project's own?"""
    module = row.view
    while module and module not in sys.modules:
        module = module.rpartition(".")[0]
    file = getattr(sys.modules.get(module), "__file__", "")
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file or "").parts)


def as_json(found: list[Row]) -> str:
    """Return the rows as a JSON array of objects, with the members of `Row`."""
    members = [
        {name: value for name, value in vars(row).items() if name not in ("callback", "policy")}
        for row in found
    ]
    return json.dumps([{**each, "guard": each["guard"].value} for each in members], indent=2)


def as_table(found: list[Row]) -> str:
    """Return a line for each row, with its view, terms and reason below."""
    written = [_line("METHODS", "GUARD", "PATH")]
    for row in found:
        methods = (
            "any unsafe"
            if len(row.methods) == len(UNSAFE_HANDLERS)
            else ",".join(row.methods) or "-"
        )
        written.append(_line(methods, row.guard.value, row.path))
        for text in filter(None, [" ".join([row.view, *_terms(row.terms)]), row.why]):
            lines = textwrap.wrap(
                text, _WIDTH - len(_INDENT), break_long_words=False, break_on_hyphens=False
            )
            written += [_INDENT + line for line in lines]
    if any(row.guard is GuardKind.MIDDLEWARE for row in found) and conf.get("SCOPE") is None:
        written += ["", "The middleware guards requests of authenticated users: SCOPE is not set."]
    return "\n".join(written)


def _line(methods: str, guard: str, path: str) -> str:
    return f"{methods:10}  {guard:10}  {path}"


def _terms(terms: dict[str, Any]) -> list[str]:
    guarantee = [terms["guarantee"]] if terms else []
    store = [f"store={terms['store']}"] if terms.get("store", "default") != "default" else []
    required = {True: ["required"], "warn": ["required=warn"]}.get(terms.get("required", False), [])
    others = [
        f"{name}={_shown(name, value)}" for name, value in terms.items() if name not in _ALWAYS
    ]
    return [*guarantee, *store, *required, *others]


def _shown(name: str, value: Any) -> Any:
    """Return a value as a person reads it: a duration as `1d12h`."""
    return span(timedelta(seconds=value)).replace(" ", "") if name in DURATIONS and value else value
