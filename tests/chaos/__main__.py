"""Restart PostgreSQL every few seconds under clients that retry, and say what became of their operations.

    python -m tests.chaos [workload]

CHAOS_CLIENTS, CHAOS_SECONDS and CHAOS_PAUSE, the time between restarts in seconds, make a run shorter or harder.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..support.database_servers import postgresql
from ..support.services import program
from .running import run
from .workloads import WORKLOADS


def main(names: Sequence[str]) -> int:
    name = names[0] if names else "charges"
    if name not in WORKLOADS or len(names) > 1:
        print(f"Name one workload: {', '.join(WORKLOADS)}.", file=sys.stderr)
        return 2
    initdb = program("initdb")
    if initdb is None:
        print("PostgreSQL's server is not installed.", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended then, as after Ctrl-C
    clients = int(os.environ.get("CHAOS_CLIENTS", "200"))
    seconds, pause = (
        float(os.environ.get(f"CHAOS_{part}", given)) for part, given in (("SECONDS", "120"), ("PAUSE", "4"))
    )
    began = time.monotonic()
    with postgresql(Path(initdb).parent, "max_connections=300") as server:
        place = {"HOST": "127.0.0.1", "PORT": str(server.port), "USER": "postgres", "PASSWORD": "", "OPTIONS": "{}"}
        os.environ.update({f"POSTGRESQL_{part}": value for part, value in place.items()})
        os.environ.update(DATABASE="postgresql", DJANGO_SETTINGS_MODULE="testproject.settings")
        import django

        django.setup()
        print(f"{name}: {clients} clients, {seconds:g} s, a restart every {pause:g} s", flush=True)
        found = run(WORKLOADS[name], server, clients=clients, seconds=seconds, pause=pause)
        from django.db import connection

        connection.close()
    print(
        f"{found}\n{'Each operation has one effect, and one order explains all responses.' if found.holds else 'BROKEN'}"
    )
    print(f"{time.monotonic() - began:.0f} s")
    return int(not found.holds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
