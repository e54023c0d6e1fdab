"""Servers of a test's own: to freeze, to kill and to restart."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from typing import TypeVar
from urllib.request import urlopen

from redis import Redis
from redis.exceptions import RedisError

from .moto_server import one_write_at_a_time
from .services import answers

ROOT = Path(__file__).resolve().parents[2]

Running = TypeVar("Running", bound="Server")


#: Below the ports that systems use for outgoing connections (Linux from 32768): while a server is
#: down, its port is given to no other process.
PORTS = range(20_000, 32_000)
#: Of those, each of the suite's two processes takes every other one, and none twice.
_PARITY = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 2
_given: set[int] = set()


def free_port() -> int:
    """Return a port that is free and was not returned before."""
    while True:
        port = SystemRandom().choice(PORTS[_PARITY::2])  # `random` itself gives each test the same
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in _given:
                _given.add(port)
                return port


class Server(ABC):
    """A process that listens on a port of its own."""

    #: Which user it runs as; `None`: as we do.
    user: str | None = None

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command to start."""

    @abstractmethod
    def answers(self) -> bool:
        """Does it respond?"""

    def environment(self) -> dict[str, str] | None:
        """Return its environment; `None`: ours."""
        return None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self.command(),
            cwd=ROOT,
            env=self.environment(),
            user=self.user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 30
        while not self.answers():
            assert self._process.poll() is None, f"{self.command()} ends at once"
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

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(10)
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(10)
            self._process = None


class RedisServer(Server):
    """A server whose files are in a folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        super().__init__()
        self._arguments = ["--dir", str(folder), *arguments]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        return [self.program(), "--port", str(self.port), "--save", "", *self._arguments]

    def program(self) -> str:
        """Return the path of redis-server, or of the server that REDIS_SERVER names, such as
        Valkey's.
        """
        name = os.environ.get("REDIS_SERVER", "redis-server")
        path = shutil.which(name)
        assert path is not None, f"{name} is not installed"
        return path

    def flush(self) -> None:
        with Redis(port=self.port) as client:
            client.flushall()

    def answers(self) -> bool:
        with suppress(RedisError), Redis(port=self.port, socket_timeout=1) as client:
            return bool(client.ping())
        return False


class RedisNode(RedisServer):
    """A node of a cluster. It has no slots yet."""

    #: Of a cluster of Redis:
    #: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
    SLOTS = 16384

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._bus = free_port()  # 10,000 above the port may not be a valid port
        super().__init__(
            folder, "--cluster-enabled", "yes", "--cluster-port", str(self._bus), *arguments
        )

    def join(self, others: Sequence[RedisNode]) -> None:
        """Make a cluster of this node and others, each with its part of the slots."""
        nodes = [self, *others]
        bounds = [self.SLOTS * number // len(nodes) for number in range(len(nodes) + 1)]
        for node, first, end in zip(nodes, bounds, bounds[1:], strict=False):
            with Redis(port=node.port) as client:
                client.execute_command("CLUSTER ADDSLOTSRANGE", first, end - 1)
                client.execute_command("CLUSTER MEET", "127.0.0.1", self.port, self._bus)
        deadline = time.monotonic() + 30
        while not all(node.knows(len(nodes)) for node in nodes):
            assert time.monotonic() < deadline, "no cluster comes about"
            time.sleep(0.02)

    def follow(self, master: RedisNode) -> None:
        """Join the cluster of a master, as its replica."""
        with Redis(port=master.port, decode_responses=True) as client:
            name = client.execute_command("CLUSTER MYID")
        with Redis(port=self.port) as client:
            client.execute_command("CLUSTER MEET", "127.0.0.1", master.port, master._bus)
            deadline = time.monotonic() + 30
            while True:
                with suppress(RedisError):  # it does not know the master yet
                    client.execute_command("CLUSTER REPLICATE", name)
                    return
                assert time.monotonic() < deadline, "the master stays unknown"
                time.sleep(0.05)

    def knows(self, nodes: int) -> bool:
        with Redis(port=self.port) as client:
            state = client.execute_command("CLUSTER INFO")
        return (state["cluster_state"], state["cluster_known_nodes"]) == ("ok", str(nodes))


class AWSServer(Server):
    """moto's server over HTTP, or ministack, whose program AWS_SERVER names.

    Both keep everything in memory, so a restart forgets the table too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ministack = os.environ.get("AWS_SERVER", "")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        if self._ministack:
            return [self._ministack]
        return [sys.executable, "-W", "ignore", "-m", "tests.support.moto_server", str(self.port)]

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "GATEWAY_PORT": str(self.port),
            "BIND_HOST": "127.0.0.1",
            "SERVICES": "dynamodb,events,sqs",
        }

    def answers(self) -> bool:
        page = "_ministack/health" if self._ministack else "moto-api/"
        with suppress(OSError), urlopen(f"{self.url}/{page}", timeout=1) as answer:
            return bool(answer.status == 200)
        return False


class KafkaServer(Server):
    """Tansu, a broker that keeps its records in memory. KAFKA_SERVER names its program."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        address = f"tcp://{self.bootstrap}"
        return [
            *(os.environ["KAFKA_SERVER"], "broker", "--storage-engine", "memory://tansu/"),
            *("--listener-url", address, "--advertised-listener-url", address),
        ]

    def answers(self) -> bool:
        return answers(self.port)


@contextmanager
def running(server: Running) -> Iterator[Running]:
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextmanager
def aws_server() -> Iterator[str]:
    """Return the address of a server like AWS's: of moto in this process, unless AWS_SERVER names
    ministack.
    """
    if os.environ.get("AWS_SERVER"):
        with running(AWSServer()) as ministack:
            yield ministack.url
        return
    from moto.server import ThreadedMotoServer  # not at the top: it takes a second

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    with one_write_at_a_time():
        server.start()
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
        server.stop()
