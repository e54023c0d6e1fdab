"""A Redis server of a test's own: to freeze, to kill, to start again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError


class RedisServer:
    """A process on a free port, with its files in a folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._arguments = ["--dir", str(folder), *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is not installed"
        command = [program, "--port", str(self.port), "--save", "", *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not self.answers():
            assert time.monotonic() < deadline, "redis-server does not start"
            time.sleep(0.02)

    def answers(self) -> bool:
        with suppress(RedisError), Redis(port=self.port, socket_timeout=1) as client:
            return bool(client.ping())
        return False

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(10)
            self._process = None


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[RedisServer]:
    server = RedisServer(folder, *arguments)
    server.start()
    try:
        yield server
    finally:
        server.kill()
