"""Kill a PostgreSQL whose replica lags, promote the replica in its place, and repeat all requests.

    python -m tests.faults.promotion

prints what became of their keys as JSON: {key: [its records, its effects, then the effects after
the retry]}.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..support.database_servers import USER, PostgreSQLServer, postgresql, private_folder
from ..support.services import program
from ..support.store_servers import running

REPLICATED = ("first", "second")
#: Committed and acknowledged when the replica got nothing any more.
LOST = ("third", "fourth")
SETTINGS = ("wal_level=replica", "max_wal_senders=4", "hot_standby=on")


@contextmanager
def replica_of(primary: PostgreSQLServer, programs: Path) -> Iterator[PostgreSQLServer]:
    """Run an asynchronous replica."""
    with private_folder() as folder:
        data, about = folder / "data", f"host=127.0.0.1 port={primary.port} user=postgres"
        copy = [
            str(programs / "pg_basebackup"),
            "-D",
            str(data),
            "-d",
            about,
            "-R",
            "-X",
            "stream",
            "--no-sync",
            "-c",
            "fast",
        ]
        subprocess.run(copy, cwd="/", user=USER, check=True, capture_output=True, timeout=60)
        with running(PostgreSQLServer(folder, programs, *SETTINGS)) as server:
            yield server


def ask(server: PostgreSQLServer, *statements: str) -> Any:
    """Return the first value of the last of these statements."""
    import psycopg

    with psycopg.connect(
        host="127.0.0.1", port=server.port, user="postgres", dbname="postgres", autocommit=True
    ) as it:
        *_, last = map(it.execute, statements)
        return (last.fetchone() or [None])[0] if last.description else None


def until(holds: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def found() -> dict[str, list[int]]:
    """Return how many records and effects each key has."""
    from django_idempotency.models import IdempotencyRecord
    from testproject.payments.models import Effect

    return {
        key: [
            IdempotencyRecord.objects.filter(key=key).count(),
            Effect.objects.filter(idempotency_key=key).count(),
        ]
        for key in REPLICATED + LOST
    }


def main() -> None:
    path = program("initdb")
    assert path is not None, "PostgreSQL's server is not installed"
    programs = Path(path).resolve().parent  # where the others are
    with postgresql(programs, *SETTINGS) as primary:
        place = {
            "HOST": "127.0.0.1",
            "PORT": str(primary.port),
            "USER": "postgres",
            "PASSWORD": "",
            "OPTIONS": "{}",
        }
        os.environ.update({f"POSTGRESQL_{part}": value for part, value in place.items()})
        os.environ.update(DATABASE="postgresql", DJANGO_SETTINGS_MODULE="testproject.settings")
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connection

        from django_idempotency import idempotent_function
        from testproject.payments.models import Effect

        @idempotent_function(key="order", key_prefix="promotion")
        def charge(*, order: str) -> int:
            return Effect.objects.create(label="charge", idempotency_key=order).attempt

        call_command("migrate", verbosity=0)
        with replica_of(primary, programs) as replica:
            for order in REPLICATED:
                charge.with_key(order)(order=order)
            position = ask(primary, "SELECT pg_current_wal_lsn()::text")
            reached = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
            until(lambda: ask(replica, reached), "The replica does not follow")
            ask(replica, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
            until(
                lambda: ask(replica, "SELECT count(*) = 0 FROM pg_stat_wal_receiver"),
                "It still follows",
            )
            for order in LOST:
                charge.with_key(order)(order=order)
            connection.close()
            primary.kill()
            ask(replica, "SELECT pg_promote()")
            replica.kill()
            replica.port = primary.port  # as a virtual address moves
            replica.start()
            before = found()
            for order in REPLICATED + LOST:
                charge.with_key(order)(order=order)
            after = found()
            connection.close()
    sys.stdout.write(json.dumps({key: [*counts, after[key][1]] for key, counts in before.items()}))


if __name__ == "__main__":
    main()
