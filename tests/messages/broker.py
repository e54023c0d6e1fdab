"""A RabbitMQ node of the test's own, to kill and to restart on the same data."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pika
from pika.exceptions import AMQPError

from ..support.store_servers import Server, free_port

#: Debian's wrapper in PATH changes the user and then the folder; this one is the program behind it.
_UNWRAPPED = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class RabbitMQServer(Server):
    """All of its files are in a folder, the cookie included; node and port mapper listen on
    127.0.0.1 only.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._mapper: subprocess.Popen[bytes] | None = None
        self._mapper_port, self._distribution_port = free_port(), free_port()
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = 127.0.0.1:{self.port}\ndisk_free_limit.absolute = 1MB\n"
        )
        (folder / "plugins").write_text("[].\n")

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F?heartbeat=10&blocked_connection_timeout=10"

    def command(self) -> list[str]:
        program = str(_UNWRAPPED) if _UNWRAPPED.exists() else shutil.which("rabbitmq-server")
        assert program is not None, "rabbitmq-server is not installed"
        return [program]

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self._folder),
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_PID_FILE": str(self._folder / "pid"),
            # One scheduler that does not spin, since it shares the machine with the test.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_FLAGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def start(self) -> None:
        mapper = shutil.which("epmd")
        assert mapper is not None, "epmd is not installed"
        self._mapper = self._started([mapper])
        self._process = self._started(self.command())
        deadline = time.monotonic() + 60
        while not self.answers():
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.1)

    def _started(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / "output").open("ab") as output:
            return subprocess.Popen(
                command,
                env=self.environment(),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return (self._folder / "output").read_text(errors="replace")[-3000:]

    def answers(self) -> bool:
        with suppress(AMQPError, OSError), pika.BlockingConnection(pika.URLParameters(self.url)):
            return True
        return False

    def kill(self) -> None:
        """SIGKILL the node, the processes that it has started, and its port mapper."""
        for process in filter(None, (self._process, self._mapper)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        self._process = self._mapper = None
