"""Starts a real gunicorn on a free port, and stops it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gunicorn.config import Config  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent.parent
HOST = "127.0.0.1"
WORKERS, THREADS = 2, 8
#: Seconds: enough for a slow machine to import Django in two workers, and for the workers to exit.
START, GRACE = 120, 5


class ServerDied(Exception):
    """gunicorn ended, or never responded."""


class Server:
    """A gunicorn that listens. Its workers inherit our environment."""

    def __init__(self, log: Path) -> None:
        self._log = log
        # Bound here and inherited: no other program can take the port in between, and early
        # requests queue.
        with socket.create_server((HOST, 0)) as listener, log.open("wb") as output:
            self.port: int = listener.getsockname()[1]
            self._process = subprocess.Popen(
                [*command(), f"--bind=fd://{listener.fileno()}"],
                cwd=ROOT,
                # No arguments except ours.
                env={
                    **os.environ,
                    "GUNICORN_CMD_ARGS": "",
                    "BANK_URL": self.address,
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[listener.fileno()],
                start_new_session=True,  # Ctrl-C is handled here
            )

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    def wait_until(self, answers: Callable[[], object]) -> None:
        """Return once `answers()` no longer raises OSError. Raises `ServerDied`."""
        deadline = time.monotonic() + START
        while True:
            try:
                answers()
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise ServerDied from error
                time.sleep(0.1)
            else:
                return

    def wait(self) -> None:
        """Serve until interrupted. Raises `ServerDied`."""
        self._process.wait()
        raise ServerDied

    def stop(self) -> None:
        """Stop gunicorn and its workers."""
        self._process.terminate()
        try:
            self._process.wait(timeout=GRACE * 2)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # too slow, or a second Ctrl-C
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def last_words(self, lines: int = 60) -> str:
        """Return the end of gunicorn's log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def serving(log: Path) -> Iterator[Server]:
    """Start a server, and always stop it."""
    server = Server(log)
    try:
        yield server
    finally:
        server.stop()


def command() -> list[str]:
    """Return the command that starts gunicorn, without its address."""
    newer = ["--no-control-socket"] if "control_socket_disable" in Config().settings else []
    return [
        *(sys.executable, "-m", "gunicorn", "testproject.wsgi", "--worker-class=gthread"),
        *(
            f"--workers={WORKERS}",
            f"--threads={THREADS}",
            "--timeout=120",
            f"--graceful-timeout={GRACE}",
        ),
        *newer,
    ]
