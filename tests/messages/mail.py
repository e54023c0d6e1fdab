"""A queue as a test sees it: messages that are sent, processes that take them, and what is left lying."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
from django.db import connection
from pika.exceptions import ChannelClosedByBroker

from ..faults.plans import until

ROOT = Path(__file__).resolve().parent.parent.parent


class Mail:
    """A queue, and processes on it. `environment` names both to them."""

    def __init__(self, url: str, queue: str, folder: Path) -> None:
        self.queue = queue
        self._log = folder / "log"
        self._log.touch()
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
            "DATABASE_NAME": str(connection.settings_dict["NAME"]),
            "RABBITMQ_URL": url,
            "LOG_LEVEL": "INFO",
        }
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0  # nobody answers for us while we wait for others
        self._connection = pika.BlockingConnection(parameters)
        self._processes: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        self.end()
        self._connection.close()

    # ------------------------------------------------------------------------------------------------------ messages

    def send(self, payload: Any, message_id: str | None = "m-1") -> None:
        properties = pika.BasicProperties(message_id=message_id, delivery_mode=pika.DeliveryMode.Persistent)
        with self._connection.channel() as channel:
            channel.basic_publish("", self.queue, json.dumps(payload).encode(), properties)

    def length(self, queue: str) -> int:
        """Count the messages that lie in a queue; none where there is none."""
        channel = self._connection.channel()
        with suppress(ChannelClosedByBroker):
            found = channel.queue_declare(queue, passive=True).method.message_count
            channel.close()
            return int(found)
        return 0

    def await_dead(self) -> tuple[pika.BasicProperties, bytes]:
        """Wait for a dead letter, and return it."""
        dead = f"{self.queue}.dead"
        self.until(lambda: self.length(dead), "there is a dead letter")
        with self._connection.channel() as channel:
            _, properties, body = channel.basic_get(dead, auto_ack=True)
        assert properties is not None
        assert body is not None
        return properties, body

    def assert_nothing_left(self) -> None:
        """Assert that all is acknowledged: nothing lies here, waits to come back or is dead, and nobody holds any."""
        self.until(self.is_empty, "all is taken")
        time.sleep(0.3)  # for acknowledgements on their way
        for process in self._processes:
            process.terminate()  # Celery's workers keep them for a while, and send them now
            process.wait(15)
        self.until(lambda: not self.consumers(), "the broker has noticed")
        assert self.is_empty(), self.log

    def is_empty(self) -> bool:
        return not any(map(self.length, (self.queue, f"{self.queue}.later.1", f"{self.queue}.dead")))

    def consumers(self) -> int:
        with self._connection.channel() as channel:
            return int(channel.queue_declare(self.queue, passive=True).method.consumer_count)

    def purge(self) -> None:
        """Forget what lies in the queue, and what a killed process held: it comes back as the broker notices."""
        self.until(lambda: not self.consumers(), "the broker has noticed")
        with self._connection.channel() as channel:
            channel.queue_purge(self.queue)

    # ----------------------------------------------------------------------------------------------------- processes

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
