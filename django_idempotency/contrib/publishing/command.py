"""Print what clients need to know about each guarded route."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from ...management.parts import HelpedCommand
from .views import policies

_HEAD = ("Method", "Path", "Key", "Lifetime", "Guarantee", "Remembered", "Problems")


class Policies(HelpedCommand):
    """`idempotency_routes --policy`."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--policy",
            choices=("md", "json"),
            help="What clients need to know about each guarded route: a table of Markdown for your "
            "documentation, or JSON.",
        )

    def handle(self, **options: Any) -> None:
        found = [each for each in policies() if options["path"] in each["path"]]
        self.stdout.write(
            json.dumps(found, indent=2) if options["policy"] == "json" else as_table(found)
        )


def as_table(found: list[dict[str, Any]]) -> str:
    """Return a Markdown table."""
    lines = [_HEAD, tuple("-" * len(name) for name in _HEAD), *map(_cells, found)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(terms: dict[str, Any]) -> tuple[str, ...]:
    needed = (
        "required"
        if terms.get("required")
        else "required for some requests"
        if terms["varies"]
        else "optional"
    )
    key = f"`{terms['carrier']['name']}`, {needed}"
    problems = ", ".join(f"{code} `{name}`" for name, code in terms["problems"].items())
    kept = remembered(terms["remembered"])
    return (
        terms["method"],
        f"`{terms['path']}`",
        key,
        terms["lifetime"],
        terms["guarantee"],
        kept,
        problems,
    )


def remembered(terms: dict[str, Any]) -> str:
    """Return in words which responses are replayed."""
    left_out = f", not {' '.join(map(str, terms['except']))}" if terms["except"] else ""
    return f"{' '.join(terms['statuses'])}{left_out}{'; the service may decide otherwise' if terms['chosen'] else ''}"
