"""Tables that are made from the code when the site is built: checks, commands, errors, dialects,
what is tested.

A page has `<!-- generated: routes -->` where its table belongs. Nothing of this is written down, so
nothing goes stale.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.core.management import find_commands, load_command_class
from django.core.management.base import BaseCommand
from reading import reading
from rows import asked

from django_idempotency import contrib, errors
from django_idempotency.contrib import dialects
from django_idempotency.contrib.forms import Form
from django_idempotency.core.conclusions import (
    DROPPED_STATUSES,
    WorkResult,
    classify_status,
    is_refusal,
    refusal_ending,
)
from django_idempotency.core.dialects import (
    FACTS,
    NAMED,
    PROBLEM_JSON,
    Answer,
    Default,
    Dialect,
    Draft,
    Stripe,
)
from django_idempotency.management.parts import Subcommands
from django_idempotency.stores.check_messages import PREFIX, Finding

Row = tuple[str, ...]

CHECKS, STORES = "django_idempotency.checks", "django_idempotency.stores"
_MARK = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)


def filled(page: str) -> str:
    """Return a page with its tables."""
    return _MARK.sub(lambda found: TABLES[found[1]]() if found[1] in TABLES else found[0], page)


def apps_having(module: str) -> list[str]:
    """Return the optional apps that have a module of this name."""
    folders = sorted(Path(contrib.__path__[0]).iterdir())
    return [
        f"{contrib.__name__}.{folder.name}"
        for folder in folders
        if (folder / f"{module}.py").is_file()
    ]


def load_apps_having() -> None:
    """Let Django know the optional apps, unless a project has begun already."""
    if not settings.configured:
        djangos = [f"django.contrib.{name}" for name in ("auth", "contenttypes", "messages")]
        settings.configure(
            INSTALLED_APPS=[*djangos, "django_idempotency", *apps_having("apps")],
            USE_TZ=True,
        )
        django.setup()


# ------------------------------------------------------------------------------------------- checks


def checks(*places: str) -> str:
    """Return the table of the checks whose classes are in some modules, or below them."""
    load_apps_having()
    package = Path(errors.__file__).parent
    for file in sorted(package.rglob("*.py")):
        if "(Finding):" in file.read_text(encoding="utf-8"):
            import_module(
                ".".join([package.name, *file.relative_to(package).with_suffix("").parts])
            )
    kinds = [kind for kind in Finding.__subclasses__() if f"{kind.__module__}.".startswith(places)]
    return written(
        [
            ("code", "it says", "type"),
            *map(row_of, sorted(kinds, key=lambda kind: kind.__name__[1:])),
        ]
    )


def row_of(kind: type[Finding]) -> Row:
    """Return a check's row. What differs between projects is in angle brackets."""
    code = kind.__name__
    silence = f'SILENCED_SYSTEM_CHECKS = ["{PREFIX}.{code}"]'
    message, hint = (
        re.sub(r"%\((\w+)\)s", r"<\1>", text).replace("<silence>", silence) for text in kind.texts()
    )
    return f"`{code}`", f"`{message}`", f"`{hint}`"


# ------------------------------------------------------------------------------------------- errors


def other_errors() -> str:
    """Return the errors that are not the first with their code: those have a section of their
    own.
    """
    rows, codes = [], set()
    for error in vars(errors).values():
        if (
            isinstance(error, type)
            and issubclass(error, errors.IdempotencyError)
            and error.__module__ == errors.__name__
        ):
            code = getattr(error, "code", None)
            if code is None or code in codes:
                says = " ".join(str(error.__doc__).partition("\n\n")[0].split())
                rows.append(
                    (f"`{error.__name__}`", f"[`{code}`](#{code})" if code else "", _cell(says))
                )
            codes.add(code)
    return written([("error", "responds with", "it says"), *rows])


# ----------------------------------------------------------------------------------------- refusals

_LEFT = {WorkResult.KEPT: "remembered", WorkResult.DROPPED: "free"}


def refusals() -> Iterator[Row]:
    """Yield how each refusal leaves its key; statuses that end alike are in one row."""
    yield (
        "status",
        "`lease`",
        "`atomic`",
        "weighed: it wrote nothing",
        "weighed: it wrote",
        "with a challenge",
    )
    alike: dict[tuple[str, ...], list[str]] = {}
    for status in (each.value for each in HTTPStatus if is_refusal(each.value)):
        usual = _LEFT[classify_status(status)]
        weighed = [_LEFT[refusal_ending(status, wrote=wrote)] for wrote in (False, True)]
        challenged = _LEFT[classify_status(status, challenges=True)]
        alike.setdefault((usual, usual, *weighed, challenged), []).append(f"`{status}`")
    for ends, statuses in alike.items():
        yield (", ".join(statuses), *ends)


# ----------------------------------------------------------------------------------------- dialects

#: In the order of the page of keys.
DIALECTS: list[Dialect] = [
    *(Default(), Draft(), Stripe(), dialects.Adyen(), dialects.PayPal(), dialects.Square()),
    *(dialects.Repeatability(), dialects.Aip155(), dialects.Zalando(), dialects.Iceberg()),
    *(dialects.Acp(), dialects.Ucp(), dialects.Adcp(), Form()),
]
#: The statuses that a dialect without statuses of its own stores.
BY_TABLE = frozenset(range(200, 500)) - DROPPED_STATUSES
_CLASSES = {first: range(first * 100, first * 100 + 100) for first in (2, 3, 4, 5)}


_SPELLED = {
    "either": "bare or quoted",
    "bare": "bare",
    "quoted": "a string of RFC 9651",
    "opaque": "bare, with commas",
}


def typed(dialect: Dialect) -> str:
    """Return what a policy says."""
    if NAMED.get(dialect.name) is type(dialect):
        return f'`"{dialect.name}"`'
    return f"`{dialect!r}`"


def names() -> Iterator[Row]:
    yield "profile", "the key is in", "spelled", "characters", "format"
    for dialect in DIALECTS:
        where = (
            ""
            if dialect.carrier == "header"
            else f"member `{dialect.field}` of the {dialect.carrier}"
        )
        spelled = _SPELLED[dialect.spelling]
        yield (
            typed(dialect),
            where or f"`{dialect.field}`",
            "-" if where else spelled,
            f"1 to {dialect.max_length}",
            f"`{dialect.pattern}`" if dialect.pattern else "any",
        )


def statuses() -> Iterator[Row]:
    yield "profile", "missing", "malformed", "another request", "running", "errors", "their headers"
    asked = (errors.KeyMissing, errors.KeyMalformed, errors.RequestMismatch, errors.InProgress)
    again = errors.InProgress(headers={"Retry-After": "1"})
    for dialect in DIALECTS:
        body = "problem document" if dialect.error_type == PROBLEM_JSON else "the API's own"
        yield (
            typed(dialect),
            *(str(dialect.status_of(problem)) for problem in asked),
            "page" if dialect.pages else body,
            ", ".join(f"`{name}`" for name in dialect.headers(Answer("", 409, problem=again))),
        )


def memory() -> Iterator[Row]:
    yield "profile", "stored statuses", "a replay of 201 is", "the key comes back on"
    for dialect in DIALECTS:
        yield (
            typed(dialect),
            "as `default`"
            if dialect.remembers is None and dialect.name != "default"
            else said(stored_by(dialect)),
            str(dialect.replays_as.get(201, 201)),
            said(dialect.echoes) if dialect.echoes else "-",
        )


def attributes() -> Iterator[Row]:
    yield "fact", "it is", "`default` has"
    for name, (_, expected) in FACTS.items():
        yield f"`{name}`", expected, f"`{getattr(Default, name)!r}`".replace("'", '"')


def stored_by(dialect: Dialect) -> Collection[int]:
    return BY_TABLE if dialect.remembers is None else dialect.remembers


def said(statuses: Collection[int]) -> str:
    """Say a set of statuses: whole classes, without what is missing of each."""
    parts = []
    for first, numbers in _CLASSES.items():
        missing = [str(number) for number in numbers if number not in statuses]
        if len(missing) < len(numbers) / 2:
            parts.append(f"{first}xx" + (f" but {', '.join(missing)}" if missing else ""))
        else:
            parts += [str(number) for number in numbers if number in statuses]
    return "all" if parts == ["2xx", "3xx", "4xx", "5xx"] else "; ".join(parts)


def runs() -> list[dict[str, Any]]:
    """Return the runs of docs/matrix.json, with the versions of Python and Django in two numbers."""
    kept = json.loads((Path(__file__).parent / "matrix.json").read_text(encoding="utf-8"))
    return [
        {
            **run,
            **run["versions"],
            "pair": tuple(
                ".".join(run["versions"][each].split(".")[:2]) for each in ("python", "django")
            ),
        }
        for run in kept
    ]


def pairs() -> Iterator[Row]:
    """Yield for each Python the date of its newest run with each Django."""
    dates: dict[tuple[str, str], str] = {}
    for run in runs():
        dates[run["pair"]] = max(run["date"], dates.get(run["pair"], ""))
    pythons = sorted({python for python, _ in dates}, key=in_order)
    djangos = sorted({django for _, django in dates}, key=in_order)
    yield ("Python", *(f"Django {django}" for django in djangos))
    for python in pythons:
        yield (python, *(dates.get((python, django), "") for django in djangos))


def in_order(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def ran() -> Iterator[Row]:
    versions = ("server", "driver", "Python", "Django", "REST framework")
    yield (*versions, "tests", "passed", "skipped", "date", "command")
    for run in sorted(runs(), key=lambda run: (run["server"], run["python"], run["name"])):
        yield (
            run["server"],
            run["driver"],
            run["python"],
            run["django"],
            run["rest_framework"],
            run["name"],
            f"{run['passed']:,}",
            f"{run['skipped']:,}",
            run["date"],
            f"`{run['by']}`",
        )


def reached() -> Iterator[Row]:
    """Yield the newest run of each place of `make reach`."""
    yield ("`make reach REACH=…`", "server", "driver", "Python, Django", "tests passed", "date")
    for run in runs():
        if run["by"].startswith("make reach"):
            versions = f"{run['python']}, {run['django']}"
            passed = f"{run['passed']:,}"
            name = f"`{run['name']}`"
            yield (name, run["server"], run["driver"], versions, passed, run["date"])


def written(rows: Iterable[Row]) -> str:
    """Return a table, whose first row is its head."""
    head, *body = rows
    lines = [f"| {' | '.join(row)} |" for row in (head, *body)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


# -------------------------------------------------------------------------------------------- tools


# ----------------------------------------------------------------------------------------- commands


#: Columns of a terminal, as the help of a command is printed.
COLUMNS = "96"
#: Django's own options, which every command has.
_DJANGOS = re.compile(r"\n  --version .*?(?=\n\n)", re.DOTALL)
_USAGE = re.compile(r"\n? *\[--version\].*?\[--force-color\]", re.DOTALL)


def commands() -> str:
    """Return a section for each command, the core's first: its help as printed, and that of its
    subcommands.
    """
    load_apps_having()
    found = [
        config
        for config in apps.get_app_configs()
        if config.name.partition(".")[0] == "django_idempotency"
    ]
    found.sort(key=lambda config: (config.name.count("."), config.name))
    return "\n\n".join(
        section(config.name, name)
        for config in found
        for name in sorted(find_commands(f"{config.path}/management"))
    )


def section(app: str, name: str) -> str:
    command = load_command_class(app, name)
    of_app = f"The app is `{app}`.\n\n" if "." in app else ""
    texts = [helped(command, name)]
    if isinstance(command, Subcommands):
        texts += [helped(command, name, subcommand) for subcommand in command.works()]
    return f"## {name}\n\n{of_app}" + "\n\n".join(f"```text\n{text}\n```" for text in texts)


def helped(command: BaseCommand, name: str, *arguments: str) -> str:
    """Return what --help prints, without Django's own options."""
    out = io.StringIO()
    with redirect_stdout(out), suppress(SystemExit), columns(COLUMNS):
        command.create_parser("manage.py", name).parse_args([*arguments, "--help"])
    return _DJANGOS.sub("", _USAGE.sub("", out.getvalue())).strip()


@contextmanager
def columns(wide: str) -> Iterator[None]:
    """Let a terminal be so wide."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = wide
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


def _cell(text: object) -> str:
    return str(text or "").replace("%%", "%").replace("|", "\\|").replace("<", "&lt;")


#: Mark → what makes its table.
TABLES: dict[str, Callable[[], str]] = {
    "settings-and-stores": lambda: checks(f"{CHECKS}.settings.", f"{CHECKS}.stores.", f"{STORES}."),
    "middleware": lambda: checks(f"{CHECKS}.middleware."),
    "routes": lambda: checks(f"{CHECKS}.routes.", f"{CHECKS}.routed.", f"{CHECKS}.policies."),
    "databases": lambda: checks(f"{CHECKS}.databases.", f"{contrib.__name__}.tenants."),
    "deploy": lambda: checks(f"{CHECKS}.servers."),
    "apps": lambda: checks(
        *(f"{app}." for app in apps_having("checks") if not app.endswith(".tenants"))
    ),
    "errors": other_errors,
    "refusals": lambda: written(refusals()),
    "names": lambda: written(names()),
    "statuses": lambda: written(statuses()),
    "memory": lambda: written(memory()),
    "attributes": lambda: written(attributes()),
    "commands": commands,
    "pairs": lambda: written(pairs()),
    "runs": lambda: written(ran()),
    "reach": lambda: written(reached()),
    "reading": reading,
    "rows": asked,
}
