"""Runs the Python of each page as it is printed, in the order in which a reader types it: `python
-m tests.docs.printed`.

The blocks of a page share one namespace. Modules of a reader's own project are stubs, and so are
the names of `READERS`: any other name must be imported or defined on the page. The program prints
what is wrong as JSON, by place.
"""

from __future__ import annotations

import builtins
import dis
import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from textwrap import dedent
from types import CodeType, ModuleType
from typing import Any
from unittest.mock import MagicMock

from .pages import DOCS, ROOT, Block, blocks, pages, text

#: Modules of a reader's project, of which each name is a stub, and a package that the tests do not
#: install.
PROJECTS = frozenset({"bookings", "corsheaders", "myproject", "myshop", "payments", "shop"})
#: Page → names that are plainly the reader's own, and that it does not import.
READERS: dict[str, frozenset[str]] = {
    "how-to/functions.md": frozenset({"Payment"}),
    "how-to/metrics.md": frozenset({"statsd"}),
    "how-to/money.md": frozenset({"Charge", "Payout", "PinFailure", "bank"}),
    "how-to/outbox.md": frozenset({"Entry"}),
    "how-to/plain-views.md": frozenset({"send_on"}),
    "how-to/scopes.md": frozenset({"authorize"}),
    "how-to/steps.md": frozenset({"order", "pay", "run"}),
    "how-to/tasks-and-messages.md": frozenset({"ReceivedEvent", "handle", "verified_event"}),
    "tutorial/first-charge.md": frozenset({"time"}),  # "with `import time` at the top"
    "reference/signals-and-logs.md": frozenset({"pager"}),
}
#: What a settings file has that Django has made.
SETTINGS = {
    "BASE_DIR": ROOT,
    "INSTALLED_APPS": list[str](),
    "MIDDLEWARE": ["shop.middleware.IdempotencyMiddleware"],
}
#: Pages that another test carries out, with their files and commands.
PLAYED = {"tutorial/booking.md": "tests/docs/test_booking.py"}
#: The first line of a block → why it is compiled, and not run.
NOT_RUN = {
    "def guarded(": "it is quoted from engine/bracket.py: tests/docs/test_walk.py",
    "import pytest\nimport schemathesis": "it reads the schema of an API that runs",
    "import uuid": "it sends a request to a server",
    "import stripe\nfrom django.db import transaction\nfrom django.http import "
    "HttpResponseBadRequest": "dj-stripe needs its own app",
    "import time\n\nfrom django_idempotency.testing import History": "it asks what clients have done",
}
#: The language of a block → how a test takes it as it is printed, or why it does not.
#: tests/docs/test_printed.py.
LANGUAGES = {
    "python": "run",
    "html": "rendered by Django, with the libraries that it loads",
    "javascript": "compiled by Node.js",
    "json": "parsed",
    "yaml": "parsed",
    "ini": "parsed",
    "properties": "parsed",
    "graphql": "parsed",
    "http": "not code: what a client and a server say",
    "shell": "compiled by bash; the options of our commands exist",
    "console": "compiled by bash, without what is shown; the options of our commands exist",
    "sql": "run by PostgreSQL or MariaDB, and rolled back; one with … is a sketch",
    "text": "not code: a drawing, or what a program prints; it fits into the page",
    "": "not code: a drawing, or what a program prints",
    "nginx": "no parser is at hand",
    "hcl": "no parser is at hand",
}
#: Before a block that is quoted from a file, which tests/docs/test_quotes.py compares, and which is
#: imported there.
_QUOTED = "<!-- from: "
#: The seconds in which a block of a page is run.
PATIENCE = 30


class Projects(MetaPathFinder, Loader):
    """Imports any module of a reader's project."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return (
            ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in PROJECTS else None
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        vars(module)["__getattr__"] = stub
        if spec.name in SCHEMAS:
            vars(module).update(SCHEMAS[spec.name]())
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is in it until it is asked for."""


def stub(name: str) -> Any:
    """Return what stands for a name of a reader's project: an exception for one that may be
    raised.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    return (
        type(name, (Exception,), {})
        if name in ("Declined", "OutOfStock", "SoldOut")
        else MagicMock(name=name)
    )


def of_graphene() -> dict[str, Any]:
    import graphene

    fields = {"name": graphene.String()}
    return {name: type(name, (graphene.ObjectType,), fields) for name in ("Query", "Mutation")}


def of_strawberry() -> dict[str, Any]:
    import strawberry

    shape = {"__annotations__": {"name": str}}
    return {name: strawberry.type(type(name, (), shape)) for name in ("Query", "Mutation")}


#: What a package asks of the reader's types.
SCHEMAS = {"shop.graphene_schema": of_graphene, "shop.strawberry_schema": of_strawberry}


def examples(page: Path) -> list[Block]:
    """Return the blocks of a page that a reader types in Python."""
    return [block for block in blocks(page) if block.language in ("python", "py", "pycon")]


def why_not_run(page: Path, block: Block) -> str:
    """Say why a block is compiled, and not run; "" if it is run."""
    if name_of(page) in PLAYED:
        return f"it is carried out by {PLAYED[name_of(page)]}"
    if is_quoted(page, block):
        return "it is quoted from a file: tests/docs/test_quotes.py"
    return next((why for first, why in NOT_RUN.items() if block.code.startswith(first)), "")


def is_quoted(page: Path, block: Block) -> bool:
    """Is a block quoted from a file, whose imports it has not?"""
    before = text(page).splitlines()[: block.line - 2]
    last = next((line for line in reversed(before) if line), "")
    return last.startswith(_QUOTED) or block.code.startswith("def run(\n")


def name_of(page: Path) -> str:
    """Name a page of the docs, or the README."""
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).as_posix()


def names_in(code: CodeType, *operations: str) -> Iterator[str]:
    """Yield the names on which code and its functions do one of these operations."""
    for step in dis.get_instructions(code):
        if step.opname in operations:
            yield str(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from names_in(inner, *operations)


@contextmanager
def bounded() -> Iterator[None]:
    """Interrupt what a page does after `PATIENCE` seconds."""

    def interrupt(*_: Any) -> None:
        raise TimeoutError(f"It takes longer than {PATIENCE} seconds.")

    signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)


def run(page: Path) -> Iterator[tuple[int, str]]:
    """Run the blocks of a page, one after the other.

    Yield the lines of those that fail, and why.
    """
    own = READERS.get(name_of(page), frozenset())
    given = {**SETTINGS, **{name: stub(name) for name in own}}
    # Its models belong to an app of the testproject.
    module = ModuleType("testproject.payments.page")
    sys.modules[module.__name__] = module
    namespace = vars(module)
    namespace.update(given, __package__="shop")
    missing = list[tuple[int, str]]()
    used = set[str]()
    defined = set[str]()
    for block in examples(page):
        code = compile(dedent(block.code), f"{page.name}:{block.line}", "exec", dont_inherit=True)
        if not why_not_run(page, block):
            try:
                with bounded():
                    exec(code, namespace)
            except BaseException as error:  # noqa: BLE001 - whatever a page does
                yield block.line, f"{type(error).__name__}: {error}"
        if not is_quoted(page, block) and name_of(page) not in PLAYED:
            names = set(names_in(code, "LOAD_GLOBAL", "LOAD_NAME"))
            used |= names
            defined |= set(names_in(code, "STORE_NAME", "STORE_GLOBAL"))
            missing += [(block.line, name) for name in names]
    for line, name in sorted(missing):
        if (
            name not in namespace
            and name not in defined
            and not hasattr(builtins, name)
            and not name.startswith("__")
        ):
            yield line, f"{name} is neither imported nor defined on the page"
    for name in sorted(own - used):
        yield 0, f"{name} in READERS is not on the page"


def main() -> None:
    """Run every page, in a database of its own."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    os.environ["STRIPE_SECRET_KEY"] = "sk_test_1"
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    import django

    django.setup()
    from django.db import connection
    from django.test.utils import isolate_apps

    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    sys.meta_path.append(Projects())
    wrong = dict[str, str]()
    for page in (*pages(), ROOT / "README.md"):
        with isolate_apps(
            "django.contrib.auth", "django.contrib.contenttypes", "testproject.payments"
        ):
            for line, why in run(page):
                wrong[f"{page.relative_to(ROOT).as_posix()}:{line}: {why}"] = why
    connection.creation.destroy_test_db(str(connection.settings_dict["NAME"]), verbosity=0)
    sys.__stdout__.write(f"\n{json.dumps(sorted(wrong))}\n")  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
