"""Work that pays a bank which takes no keys, on a server that dies right after the bank was paid;
then it is repeated.

    python -m tests.faults.durable_claims crash postgresql
    python -m tests.faults.durable_claims crash mariadb
    python -m tests.faults.durable_claims promotion postgresql
    python -m tests.faults.durable_claims crash postgresql off

`crash` ends a PostgreSQL as `pg_ctl stop -m immediate` does, and a MariaDB by `kill -9`; it
restarts it and does so again in the takeover. `promotion` kills a primary whose standby is
synchronous, and promotes that. The program prints as JSON what became of each key: {key: [how often
the bank was paid, [[attempt, was it told that an earlier one may have acted?], …]]}.

With `off` the store has `"durable_claims": False`, and the work asks if `attempt > 1`: the bank is
paid twice.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..support.database_servers import PostgreSQLServer, mariadb, postgresql
from ..support.services import program
from ..support.store_servers import Server
from .promotion import SETTINGS, ask, replica_of, until

#: Each is a call of its own, in a thread and on a connection of its own.
KEYS = [f"order-{number}" for number in range(20)]
#: What is committed asynchronously must not reach the disk by chance.
LAZY = ("wal_writer_delay=10s", "wal_writer_flush_after=1GB", "synchronous_commit=on")


class Bank:
    """Takes no keys, and can be asked. It outlives every server."""

    #: What happens right after a payment.
    deaths: Deaths | None = None

    def __init__(self) -> None:
        self.payments: Counter[str] = Counter()
        self.told: dict[str, list[tuple[int, bool]]] = {key: [] for key in KEYS}
        self._lock = threading.Lock()

    def pay(self, order: str, attempt: int, may_have_acted: bool) -> None:
        """Do what money.md says: look first, if an earlier attempt may have paid."""
        with self._lock:
            self.told[order].append((attempt, may_have_acted))
            if not may_have_acted or not self.payments[order]:
                self.payments[order] += 1


class Deaths:
    """Ends the server when all calls have paid, and before any of them goes on."""

    def __init__(self, kill: Callable[[], None]) -> None:
        self._kill = kill
        self._paid, self._dead = threading.Barrier(len(KEYS) + 1), threading.Event()

    def meet(self) -> None:
        self._paid.wait(60)
        self._dead.wait(60)

    def during(self, call: Callable[[str], object]) -> None:
        """Let each key be called, and the server die meanwhile."""
        threads = [threading.Thread(target=call, args=[key]) for key in KEYS]
        for thread in threads:
            thread.start()
        self._paid.wait(60)
        self._kill()
        self._dead.set()
        for thread in threads:
            thread.join(60)


@contextmanager
def served(kind: str, scenario: str) -> Iterator[tuple[Server, Path]]:
    if kind == "mariadb":
        with mariadb("max-connections=100") as server:
            yield server, Path()
        return
    path = program("initdb")
    assert path is not None, "PostgreSQL's server is not installed"
    programs = Path(path).resolve().parent  # where the others are
    with postgresql(programs, *(SETTINGS if scenario == "promotion" else ()), *LAZY) as primary:
        yield primary, programs


def declare(kind: str, server: Server) -> None:
    user = "root" if kind == "mariadb" else "postgres"
    place = {
        "HOST": "127.0.0.1",
        "PORT": str(server.port),
        "USER": user,
        "PASSWORD": "",
        "OPTIONS": "{}",
    }
    os.environ.update({f"{kind.upper()}_{part}": value for part, value in place.items()})
    os.environ.update(DATABASE=kind, DJANGO_SETTINGS_MODULE="testproject.settings")
    if kind == "mariadb":
        import pymysql

        name = os.environ["DATABASE_NAME"] = "idempotency"
        with (
            pymysql.connect(host="127.0.0.1", port=server.port, user="root") as session,
            session.cursor() as cursor,
        ):
            cursor.execute(f"CREATE DATABASE {name}")
    import django

    django.setup()
    logging.disable()  # each call says that it has lost its server
    from django.core.management import call_command
    from django.db import connections

    call_command("migrate", "django_idempotency", verbosity=0)
    connections.close_all()


def main(scenario: str, kind: str, claims: str = "durable") -> None:
    with served(kind, scenario) as (server, programs):
        declare(kind, server)
        from django.test import override_settings

        options = {"durable_claims": claims == "durable"}
        store = {"BACKEND": "django_idempotency.stores.orm.ORMStore", "OPTIONS": options}
        with override_settings(IDEMPOTENCY={"STORES": {"default": store}}):
            told = run(scenario, server, programs, durable=claims == "durable")
    sys.stdout.write(json.dumps(told))


def run(scenario: str, server: Server, programs: Path, *, durable: bool) -> dict[str, Any]:
    bank = Bank()
    call = caller(bank, durable=durable)

    def die(kill: Callable[[], None]) -> None:
        bank.deaths = Deaths(kill)
        bank.deaths.during(call)
        bank.deaths = None

    if scenario == "promotion":
        assert isinstance(server, PostgreSQLServer)
        with replica_of(server, programs) as replica:
            ask(
                server,
                "ALTER SYSTEM SET synchronous_standby_names = '*'",
                "SELECT pg_reload_conf()",
            )
            until(
                lambda: ask(
                    server, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
                ),
                "sync",
            )
            die(server.kill)
            ask(replica, "SELECT pg_promote()")
            replica.kill()
            replica.port = server.port  # as a virtual address moves
            replica.start()
            assert all(map(call, KEYS))
    else:
        for _ in range(2):  # the second time in a takeover
            die(server.kill)
            server.start()
        assert all(map(call, KEYS))
    return {key: [bank.payments[key], bank.told[key]] for key in KEYS}


def caller(bank: Bank, *, durable: bool) -> Callable[[str], bool]:
    """Return what calls a guarded function under a key until it runs, or its server dies: did it
    return?
    """
    from django.db import Error, connections

    from django_idempotency import idempotent_function
    from django_idempotency.errors import IdempotencyError, InProgress
    from django_idempotency.functions import current_operation

    @idempotent_function(key="order", key_prefix="durable")
    def pay(*, order: str) -> int:
        operation = current_operation()
        assert operation is not None
        bank.pay(
            order, operation.attempt, operation.may_have_acted if durable else operation.attempt > 1
        )
        if bank.deaths is not None:
            bank.deaths.meet()
        return operation.attempt

    def call(key: str) -> bool:
        try:
            while True:
                try:
                    pay(order=key)
                except InProgress:
                    threading.Event().wait(0.1)
                except (IdempotencyError, Error):
                    return False
                else:
                    return True
        finally:
            connections.close_all()

    return call


if __name__ == "__main__":
    main(*sys.argv[1:])
