"""One database: create it, measure, drop it. And the stores that need none."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

import django
from django.db import OperationalError, connection
from django.utils import timezone

from .measuring import Effort
from .table import Section, heading

#: Table → the module that yields its sections. They load models, and what not every environment
#: has.
SECTIONS = {
    "churn": "benchmarks.churning",
    "memory": "benchmarks.worker",
    "partitions": "benchmarks.partitions",
    "peers": "benchmarks.peers.comparing",
    "scale": "benchmarks.scale",
    "throughput": "benchmarks.throughput",
}


def run(effort: Effort, table: str | None, *, save: bool = False) -> int:
    """Print the tables of this process's database, or the one named, or report that it cannot be
    reached.
    """
    begin()
    try:
        connection.ensure_connection()
    except OperationalError as error:
        print(f"\n{heading(connection.display_name + ': NOT REACHED')}\n{error}")
        return 0
    with own_database():
        driver = getattr(connection, "Database", None)
        version = ".".join(map(str, connection.get_database_version()))
        named = f"{getattr(driver, '__name__', '')} {getattr(driver, '__version__', '')}".strip()
        about = f"{connection.display_name} {version}, {named}"
        if table is None:
            print(f"\n{heading(about)}")
            for section in measured(effort):
                if section is not None:
                    print(section)
        if table in (None, "distance") and connection.vendor != "sqlite":  # it has no server
            from .distance import distance

            print(f"\n{heading(f'{about}, at a distance', 'trips')}")
            print(distance(effort))
        if table in SECTIONS:
            print(f"\n{heading(f'{table.capitalize()} on {about}', '')}")
            seen = []
            for section in import_module(SECTIONS[table]).sections(effort):
                print(section)
                seen.append(section)
            if save:
                keep(seen, about)
    return 0


def run_stores(chosen: Sequence[str], effort: Effort) -> int:
    """Print one table per store without a database, or report what is missing."""
    begin()
    from . import dynamodb_store, functions, local, redis_store  # they load models

    if "memory" in chosen:
        print(f"\n{heading('MemoryStore', 'trips')}")
        print(local.memory(effort))
    if "functions" in chosen:
        if lacking := functions.missing():
            print(f"\n{heading(f'Functions: NOT COMPARED, {lacking} not installed', 'trips')}")
        else:
            print(f"\n{heading(f'Functions on MemoryStore, {functions.about()}', 'trips')}")
            with functions.in_memory():
                for section in functions.sections(effort):
                    print(section)
    if "redis" in chosen:
        with redis_store.opened() as redis:
            print(f"\n{heading(f'RedisStore, Redis {redis.about}', 'trips')}")
            for section in redis_store.sections(redis, effort) if redis.store is not None else ():
                print(section)
    if "dynamodb" in chosen:
        if lacking := dynamodb_store.missing():
            print(
                f"\n{heading(f'DynamoDBStore: NOT REACHED, {lacking} not installed', 'requests')}"
            )
            return 0
        with dynamodb_store.served() as store:
            print(f"\n{heading('DynamoDBStore, moto over HTTP', 'requests')}")
            for section in dynamodb_store.sections(store, effort):
                print(section)
    return 0


def keep(sections: Sequence[Section], about: str) -> None:
    """Keep what these charts of the docs show, and draw all of them."""
    from . import charts

    lines: dict[str, dict[str, dict[float, float]]] = {}
    for section in sections:
        for point in section.points:
            lines.setdefault(point.chart, {}).setdefault(point.line, {})[point.x] = round(
                point.y, 3
            )
    kept = json.loads(charts.RESULTS.read_text(encoding="utf-8"))
    about = (
        f"{timezone.now():%Y-%m-%d}, {about}, Python {platform.python_version()}, Django "
        f"{django.__version__}"
    )
    for chart, lines_ in lines.items():
        kept["about"][chart] = f"{about}, {os.cpu_count()} cores"
        kept["charts"][chart] = {line: list(points.items()) for line, points in lines_.items()}
    charts.RESULTS.write_text(json.dumps(kept) + "\n", encoding="utf-8")
    charts.main()


def begin() -> None:
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        # An ASCII terminal shows ? for missing characters.
        reconfigure(errors="replace", line_buffering=True)
    django.setup()


@contextmanager
def own_database() -> Iterator[None]:
    """Work in a database that is created now and dropped afterwards, as in a test run."""
    name = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


def measured(effort: Effort) -> Iterator[Section | None]:
    from . import entry_points, local, outbox, purging, share, store  # they load models

    yield from entry_points.sections(effort)
    yield share.share(effort)
    yield store.verbs(effort)
    yield local.fronts(effort)
    yield store.growth(effort)
    yield purging.purge(effort)
    yield outbox.outbox(effort)
    yield store.size(effort)
