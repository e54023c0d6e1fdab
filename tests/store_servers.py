"""Servers of a test's own: to freeze, to kill, to start again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

from redis import Redis
from redis.exceptions import RedisError

Running = TypeVar("Running", bound="Server")


class Server(ABC):
    """A process that listens on a port of its own."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return what to start."""

    @abstractmethod
    def answers(self) -> bool:
        """Does it serve?"""

    def start(self) -> None:
        self._process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not self.answers():
            assert time.monotonic() < deadline, f"{self.command()} does not start"
            time.sleep(0.02)

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        self.kill()
        self.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(10)
            self._process = None


class RedisServer(Server):
    """Its files are in a folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        super().__init__()
        self._arguments = ["--dir", str(folder), *arguments]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is not installed"
        return [program, "--port", str(self.port), "--save", "", *self._arguments]

    def flush(self) -> None:
        with Redis(port=self.port) as client:
            client.flushall()

    def answers(self) -> bool:
        with suppress(RedisError), Redis(port=self.port, socket_timeout=1) as client:
            return bool(client.ping())
        return False


class DynamoDBServer(Server):
    """moto's, over HTTP: it keeps everything in memory, so a restart forgets the table too."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def answers(self) -> bool:
        with suppress(OSError), urlopen(f"{self.url}/moto-api/", timeout=1) as answer:
            return bool(answer.status == 200)
        return False


@contextmanager
def running(server: Running) -> Iterator[Running]:
    server.start()
    try:
        yield server
    finally:
        server.kill()
