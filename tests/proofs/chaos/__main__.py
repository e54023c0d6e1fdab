"""Restart PostgreSQL every few seconds under clients that retry, and say what became of their
operations.

    python -m tests.proofs.chaos [--failover] [workload …]

With --failover there are two, of which the second follows the first synchronously: the first is
killed for good, and the second is promoted.

CHAOS_CLIENTS, CHAOS_SECONDS and CHAOS_PAUSE, the time between restarts in seconds, make a run
shorter or harder.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ...support.database_servers import postgresql
from ...support.services import program
from .failover import pair
from .running import Restarts, run
from .workloads import FOLDER, WORKLOADS


def main(arguments: Sequence[str]) -> int:
    fails_over = "--failover" in arguments
    names = [name for name in arguments if name != "--failover"]
    if unknown := set(names) - set(WORKLOADS):
        print(f"{', '.join(unknown)}? The workloads are {', '.join(WORKLOADS)}.", file=sys.stderr)
        return 2
    workloads = {name: WORKLOADS[name] for name in names or WORKLOADS}
    initdb = program("initdb")
    if initdb is None:
        print("PostgreSQL's server is not installed.", file=sys.stderr)
        return 2
    # What was started is ended then, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    clients = int(os.environ.get("CHAOS_CLIENTS", "200"))
    seconds, pause = (
        float(os.environ.get(f"CHAOS_{part}", given))
        for part, given in (("SECONDS", "120"), ("PAUSE", "4"))
    )
    began = time.monotonic()
    programs = Path(initdb).resolve().parent
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        place = {"USER": "postgres", "PASSWORD": ""}
        server: Restarts
        if fails_over:
            both = stack.enter_context(pair(programs, "max_connections=300"))
            place |= both.place
            server = both
        else:
            one = stack.enter_context(postgresql(programs, "max_connections=300"))
            place |= {"HOST": "127.0.0.1", "PORT": str(one.port), "OPTIONS": "{}"}
            server = one
        os.environ.update({f"POSTGRESQL_{part}": value for part, value in place.items()})
        os.environ.update(
            DATABASE="postgresql", DJANGO_SETTINGS_MODULE="tests.proofs.chaos.settings"
        )
        os.environ[FOLDER] = folder
        import django

        django.setup()
        print(
            f"{', '.join(workloads)}: {clients} clients, {seconds:g} s, a "
            f"{'failover' if fails_over else 'restart'} every {pause:g} s",
            flush=True,
        )
        reports = run(workloads, server, clients=clients, seconds=seconds, pause=pause)
        from django.db import connection

        connection.close()
    for name, found in reports.items():
        print(f"\n{name}\n{found}")
    holds = all(found.holds for found in reports.values())
    print(
        "Each operation has one effect, and one order explains all responses."
        if holds
        else "BROKEN"
    )
    print(f"{time.monotonic() - began:.0f} s")
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
