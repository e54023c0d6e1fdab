"""One database: make ours, measure, drop it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import django
from django.db import OperationalError, connection

from .measuring import Effort
from .table import Section, heading


def run(*, rounds: int, samples: int, rows: int, purged: int) -> int:
    """Print this process's database's table. A database that cannot be reached is said to be so."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace", line_buffering=True)  # an ASCII terminal shows ? for what it lacks
    django.setup()
    try:
        connection.ensure_connection()
    except OperationalError as error:
        print(f"\n{heading(connection.display_name + ': NOT REACHED')}\n{error}")
        return 0
    effort = Effort(rounds=rounds, samples=samples, rows=rows, purged=purged)
    with own_database():
        driver = getattr(connection, "Database", None)
        version = ".".join(map(str, connection.get_database_version()))
        named = f"{getattr(driver, '__name__', '')} {getattr(driver, '__version__', '')}".strip()
        print(f"\n{heading(f'{connection.display_name} {version}, {named}')}")
        for section in measured(effort):
            if section is not None:
                print(section)
    return 0


@contextmanager
def own_database() -> Iterator[None]:
    """Work in a database that is made now and dropped afterwards, as a test run does."""
    name = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


def measured(effort: Effort) -> Iterator[Section | None]:
    from . import doors, purging, store  # they load models

    yield from doors.sections(effort)
    yield store.verbs(effort)
    yield store.growth(effort)
    yield purging.purge(effort)
    yield store.size(effort)
