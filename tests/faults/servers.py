"""Real servers on the test database: gunicorn and uvicorn, each in its own session of processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from django.db import connection
from gunicorn.config import Config  # type: ignore[import-untyped]

from .plans import state, until

ROOT = Path(__file__).resolve().parent.parent.parent
WORKERS = 2
THREADS = 8


class Server:
    """A running server. `workers`: how many processes must have loaded the application before it is
    ready.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], port: int, log: Path, *, workers: int = 0
    ) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self._log = log
        self._workers = workers

    @property
    def log(self) -> str:
        """Return what the server has printed so far."""
        return self._log.read_text(errors="replace")

    def await_ready(self) -> None:
        """Wait until the server responds, with all of its workers: one may have been killed a
        moment ago.
        """
        until(self._is_ready, f"the server is ready. It said:\n{self.log[-2000:]}")

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log
        if self._workers:
            return (
                sum(state(pid)[:1] in ("R", "S", "D") for pid in self._children()) >= self._workers
            )
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/ready/", trust_env=False, verify=False).is_success
        return False

    def _children(self) -> Iterator[int]:
        return (int(path.stem) for path in self._log.parent.glob("*.worker"))

    def wake(self) -> None:
        """Resume a process that a failed test has left stopped."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGCONT)

    def stop(self) -> None:
        group = self.process.pid
        self.wake()
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGTERM)
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            self.process.wait()


def environment(folder: Path, extra: Mapping[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
        "DATABASE_NAME": str(connection.settings_dict["NAME"]),
        "WORKERS_FOLDER": str(folder),
        **extra,
    }


@contextmanager
def gunicorn(
    folder: Path, pool: tuple[int, int] = (WORKERS, THREADS), /, **extra: str
) -> Iterator[Server]:
    """Run 2 processes of 8 threads, or of the class that WORKER_CLASS names.

    `extra` is environment.

    `pool`: how many processes, of how many threads. One is gunicorn's sync worker, which `-w` alone
    gives.
    """
    workers, threads = pool
    kind = os.environ.get("WORKER_CLASS", "gthread" if pool[1] > 1 else "sync")
    gunicorn = [
        sys.executable,
        "-m",
        "gunicorn",
        "testproject.wsgi",
        f"--worker-class={kind}",
        "--timeout=0",
    ]
    gunicorn += ["--config=python:tests.faults.gunicorn"]
    # A worker that replaces a killed one is a fork, and need not import anything. gevent patches
    # what it imports.
    gunicorn += ["--preload"] if kind in ("gthread", "sync") else []
    gunicorn += [f"--workers={workers}", f"--threads={threads}", "--graceful-timeout=1"]
    # Since version 25 it has a control socket, at one fixed place.
    gunicorn += ["--no-control-socket"] if "control_socket_disable" in Config().settings else []
    with serving(gunicorn, "--bind=fd://{}", folder, extra, workers=workers) as server:
        yield server


@contextmanager
def uvicorn(folder: Path, **extra: str) -> Iterator[Server]:
    """Run one process. `extra` is environment."""
    uvicorn = [sys.executable, "-m", "uvicorn", "testproject.asgi:application", "--lifespan=off"]
    uvicorn += ["--no-access-log", "--timeout-graceful-shutdown=1"]
    with serving(uvicorn, "--fd={}", folder, extra) as server:
        yield server


@contextmanager
def serving(
    command: list[str], bind: str, folder: Path, extra: Mapping[str, str], *, workers: int = 0
) -> Iterator[Server]:
    """Give a server a socket that already listens, so that no port is chosen and lost again."""
    log = folder / "server.log"
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening, log.open("wb") as output:
        fd = listening.fileno()
        process = subprocess.Popen(
            [*command, bind.format(fd)],
            cwd=ROOT,
            env=environment(folder, extra),
            pass_fds=[fd],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        server = Server(process, listening.getsockname()[1], log, workers=workers)
    try:
        server.await_ready()
        yield server
    finally:
        server.stop()
