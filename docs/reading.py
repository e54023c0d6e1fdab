"""The package's source in reading order: what every project has, in parts, each of about half an
hour.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import django_idempotency

PACKAGE = Path(django_idempotency.__file__).parent
#: Not here: optional apps, helpers for tests, stores that a setting names, and what those share, each
#: of which is read alone; nor migrations.
APART = (
    *("contrib/", "testing/", "migrations/"),
    *(
        "stores/redis/",
        "stores/dynamodb/",
        "stores/layered/",
        "stores/key_value/",
        "stores/memory",
        "stores/wrapper",
    ),
)
#: Lines that one reads in a minute, the docstrings among them.
PACE = 40

#: Part → its modules and folders in order. A folder stands for what of it no earlier entry has
#: named.
PARTS = {
    "What passes between the parts, and what can go wrong": (
        "errors core/records core/at_rest core/failures core/standings core/lifetime models"
    ),
    "The rules": "core/rules core/conclusions core/hashing core/interventions",
    "A call that is atomic": "engine/operation engine/waiting stores/base",
    "The store in the database": (
        "stores/orm/store stores/orm/statements stores/orm/database_errors"
    ),
    "Its guard: the transaction of the work": (
        "stores/orm/guard stores/orm/dialects stores/interrupted"
    ),
    "The bracket: open a call, run its work, end it; and async work": (
        "engine/bracket engine/threads stores/lending core/concurrency"
    ),
    "A call under a lease, and what runs in the background": (
        "engine/lease engine/settling engine"
    ),
    "What else the store does: purge, changes by hand, repeats, and how its checks speak": "stores",
    "A policy and the settings": "core/policy engine/extensions core/dialects conf core/key_formats",
    "The way of a request": "http/run http/admission http/plan http/exchange",
    "A request in the bracket": "http/call http/problems http/atomic_requests",
    "Key, scope and fingerprint": "scopes http/bodies",
    "The response": ("http/responses http/unguarded http/counting"),
    "Views": "http/views http/kinds http/markers http/layers http/access_checks http/exemptions",
    "Entry points of Django": "middleware decorators apps",
    "The entry point of REST framework": "rest_framework",
    "What selects: expressions and canonical JSON": (
        "core/selectors core/expressions http/selection core/canonical http"
    ),
    "Functions": (
        "functions/decorator functions/terms functions/arguments functions/names "
        "functions/call functions/running "
        "functions/current"
    ),
    "How they end, and their results": "functions/endings functions core/serialization",
    "What a work sees; stores by their names; events and figures": "runtime instrumentation "
    "signals",
    "System checks": "checks",
    "Looking, and changing by hand": "inspection core admin",
    "Commands, and what others may import": "management __init__ api",
}


def files() -> dict[str, Path]:
    """Return the files of the core by their names without the suffix; a package's own file is
    `…/__init__`.
    """
    found = {
        path.relative_to(PACKAGE).with_suffix("").as_posix(): path
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    return {
        name: path
        for name, path in found.items()
        if not name.startswith(APART) and path.stat().st_size
    }


def parts() -> Iterator[tuple[str, list[tuple[str, Path]]]]:
    """Yield each part with its files, in reading order."""
    left = files()
    for title, named in PARTS.items():
        chosen = [
            (name, left.pop(name))
            for each in named.split()
            for name in list(left)
            if f"{name}/".startswith(f"{each}/")
        ]
        yield title, chosen


def length(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def minutes(lines: int) -> int:
    """Return how long one reads so many lines."""
    return round(lines / PACE)


def decides(path: Path) -> str:
    """Return the first sentence of a file."""
    said = " ".join(
        (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
        .partition("\n\n")[0]
        .split()
    )
    return said.replace("|", "\\|").replace("<", "&lt;")


def reading() -> str:
    """Return the parts of the source as sections, each with a table of its files."""
    sections = []
    for number, (title, chosen) in enumerate(parts(), 1):
        took = minutes(sum(length(path) for _, path in chosen))
        rows = [f"| `{name}.py` | {length(path)} | {decides(path)} |" for name, path in chosen]
        sections.append(
            "\n".join(
                [
                    f"### {number}. {title} ({took} min)",
                    "",
                    "| file | lines | |",
                    "|---|---|---|",
                    *rows,
                ]
            )
        )
    return "\n\n".join(sections)
