"""Servers of the compared views on a free port: gunicorn and uvicorn, as many projects run them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

from django.db import connection

from .environments import ROOT

HOST = "127.0.0.1"
WORKERS, THREADS = 2, 8
#: Seconds that a server may take until it listens.
START = 60
GUNICORN = (
    "gunicorn",
    "benchmarks.serving:wsgi",
    f"--workers={WORKERS}",
    f"--threads={THREADS}",
    "--bind=fd://{}",
)
UVICORN = (
    "uvicorn",
    "benchmarks.serving:asgi",
    f"--workers={WORKERS}",
    "--log-level=critical",
    "--fd={}",
)


@contextmanager
def serving(command: tuple[str, ...], *, pool: int = 0) -> Iterator[str]:
    """Yield the address of a server on this process's database.

    `pool`: connections in a pool of Django's, or none.
    """
    environment = {
        **os.environ,
        "DATABASE_NAME": str(connection.settings_dict["NAME"]),
        "BENCH_POOL": str(pool),
    }
    with socket.create_server((HOST, 0), backlog=256) as listener:
        name, port = listener.fileno(), listener.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", *(part.format(name) for part in command)],
            cwd=ROOT,
            env={**environment, "GUNICORN_CMD_ARGS": ""},
            stderr=subprocess.DEVNULL,
            pass_fds=[name],
        )
    try:
        wait(port)
        yield f"http://{HOST}:{port}"
    finally:
        process.terminate()
        process.wait()


def wait(port: int) -> None:
    """Return when the server responds. Raises `OSError` if it does not in time."""
    deadline = time.monotonic() + START
    while True:
        try:
            asked = HTTPConnection(HOST, port, timeout=START)
            asked.request("GET", "/")
            asked.getresponse().read()
            asked.close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
