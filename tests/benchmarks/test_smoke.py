"""The benchmark runs and fills its table. People judge what it measures; no test does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks.environments import is_built

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

ROWS = (
    "first request, atomic ",
    "first request, atomic, by the middleware",
    "first request, lease",
    "first request, lease, in three steps",
    "replay ",
    "busy (409)",
    "mismatch (422)",
    "no key, under the middleware ",
    "no key, under the decorator",
    "first request, atomic, by the mixin",
    "replay, by the mixin",
    "no key, under the mixin",
    "CPU time of one request through DRF",
    "replay, less authentication",
    "first request, sealed",
    "replay, sealed",
    "claim of a new key, atomic / a bare INSERT of the row",
    "claim of a new key, atomic / get_or_create",
    "claim of a known key (replay) / its SELECT by key",
    "settle / the same UPDATE",
    "at 100 rows",
    "rows deleted in a second",
    "claim and settle beside it, p99",
    "messages that leave in a second",
    "statements of a batch",
    "replay from the local cache",
)
#: Beyond what the bare view or authentication wait for, where the database is far away.
DISTANT = (
    "bare DRF view",
    "authentication alone",
    "first request, atomic, less the bare view",
    "replay, less authentication",
    "busy (409), less authentication",
    "mismatch (422), less authentication",
)
LARGE = (
    "claim and settle",
    "replay, of any key",
    "purge of 100 rows",
    "rows deleted in a second",
    "A day of 240 claims, autovacuum_vacuum_scale_factor = 0.02",
    "together",
    "growth until the end",
)
PARTITIONED = ("claim of a new key", "claim and settle", "replay", "purged", "detached and dropped")
#: A store without a database: its heading, and its rows if its server is there.
STORES = {
    "MemoryStore": ("claim of a new key", "claim of a known key (replay)", "settle"),
    "Functions": (
        "A small payload, one field of it the key",
        "One field of it the key, two of them validated",
        "A dataclass in, another out",
        "A payload of 100 items",
        "first call",
        "replay",
    ),
    "RedisStore": (
        "GET of 1 kB",
        "claim of a new key",
        "claim of a known key (replay)",
        "settle",
        "replay, as a front of a layered store",
        "in progress",
        "finished, beyond a plain value of its body of 1 kB",
    ),
    "DynamoDBStore": (
        "claim of a new key",
        "claim of a known key (replay)",
        "settle",
        "first call (claim and settle)",
        "in progress",
        "finished, without its body of 1 kB",
    ),
}


def bench(*arguments: str, **environment: str) -> str:
    """Run the benchmark at its shortest, and return what it prints."""
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "--rounds",
        "1",
        "--samples",
        "2",
        "--rows",
        "100",
        *arguments,
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def missing(rows: Iterable[str], table: str) -> list[str]:
    lines = [line.strip() for line in table.splitlines()]
    return [row for row in rows if not any(line.startswith(row) for line in lines)]


def test_the_table_has_its_rows() -> None:
    """`make bench` measures each case in a database of its own."""
    table = bench("--databases", "sqlite", "--stores", TEST_DATABASE_SUFFIX=f"_smoke{os.getpid()}")
    assert "=== SQLite" in table
    assert missing(ROWS, table) == []
    assert not list(ROOT.glob(f"*_smoke{os.getpid()}*")), "the database is dropped"


def test_a_distant_database_has_a_table() -> None:
    """The requests are measured through a proxy, or the table says that there is no server."""
    table = bench("--distance", TEST_DATABASE_SUFFIX=f"_smoke{os.getpid()}")
    assert "=== PostgreSQL" in table
    assert "NOT REACHED" in table or missing(DISTANT, table) == []


def test_a_large_table_has_a_table() -> None:
    """Growth, purge, churn and a worker's memory are measured, however few rows there are."""
    table = bench("--scale", TEST_DATABASE_SUFFIX=f"_smoke{os.getpid()}")
    assert "NOT REACHED" in table or missing(LARGE, table) == []


def test_partitions_have_a_table() -> None:
    """Verbs and the end of a day are measured in partitions."""
    table = bench("--partitions", TEST_DATABASE_SUFFIX=f"_smoke{os.getpid()}")
    assert "NOT REACHED" in table or missing(PARTITIONED, table) == []


@pytest.mark.skipif(
    not is_built("load"), reason="make bench BENCH_FLAGS=--throughput installs k6 first"
)
def test_servers_under_load_have_a_table() -> None:
    """Both servers answer every request of the load as its case expects."""
    table = bench("--throughput", "--samples", "1", TEST_DATABASE_SUFFIX=f"_smoke{os.getpid()}")
    assert (
        "NOT REACHED" in table
        or missing(("gunicorn", "uvicorn", "bare view", "fresh keys", "replays"), table) == []
    )


@pytest.mark.skipif(
    not is_built("peers"), reason="make bench BENCH_FLAGS=--peers installs them first"
)
def test_other_packages_have_a_table() -> None:
    """Each package responds as its case expects, and each accident has its outcome."""
    table = bench("--peers", TEST_DATABASE_SUFFIX=f"_smoke{os.getpid()}")
    assert (
        "NOT REACHED" in table
        or missing(("First request", "Replay", "idemkit", "A known key"), table) == []
    )


def test_every_other_store_has_a_table() -> None:
    """A store whose server is missing says so, and the others are still measured."""
    tables = bench("--databases").split("\n=== ")[1:]
    assert [table.split()[0].strip(",:") for table in tables] == list(STORES)
    for table, rows in zip(tables, STORES.values(), strict=True):
        assert "NOT REACHED" in table or "NOT COMPARED" in table or missing(rows, table) == []


def test_a_missing_server_is_reported() -> None:
    """A missing server is reported and is not a failure."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    table = bench("--databases", "--stores", "redis", REDIS_URL=f"redis://127.0.0.1:{port}/0")
    assert "=== RedisStore, Redis NOT REACHED: " in table
