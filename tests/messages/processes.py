"""Python processes of a test: they write to one log, and end with the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from django.db import connection

from ..faults.plans import until

ROOT = Path(__file__).resolve().parent.parent.parent


class Processes:
    """Processes on the test database. `environment` is what else they are given."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self._log = folder / "log"
        self._log.touch()
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
            "DATABASE_NAME": str(connection.settings_dict["NAME"]),
            "LOG_LEVEL": "INFO",
            **environment,
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        self.end()

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a Python process."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def end(self) -> None:
        """Kill all processes, and their children."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)

    @property
    def log(self) -> str:
        """Return what all processes have printed."""
        return self._log.read_text(errors="replace")

    def until(self, check: Callable[[], object], what: str) -> None:
        try:
            until(check, what)
        except TimeoutError as error:
            raise AssertionError(f"{error} They said:\n{self.log[-3000:]}") from None
