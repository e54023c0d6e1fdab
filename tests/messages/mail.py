"""A queue as a test sees it: messages sent, processes that take them, and what remains."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
from pika.exceptions import ChannelClosedByBroker

from .processes import Processes


class Mail(Processes):
    """A queue, and processes on it. `environment` gives them the names of both."""

    def __init__(self, url: str, queue: str, folder: Path) -> None:
        super().__init__(folder, RABBITMQ_URL=url)
        self.queue = queue
        parameters = pika.URLParameters(url)
        parameters.heartbeat = (
            0  # this connection sends no heartbeats while the test waits for others
        )
        self._connection = pika.BlockingConnection(parameters)

    def close(self) -> None:
        super().close()
        self._connection.close()

    def send(self, payload: Any, message_id: str | None = "m-1") -> None:
        properties = pika.BasicProperties(
            message_id=message_id, delivery_mode=pika.DeliveryMode.Persistent
        )
        with self._connection.channel() as channel:
            channel.basic_publish("", self.queue, json.dumps(payload).encode(), properties)

    def length(self, queue: str) -> int:
        """Count the messages in a queue, or 0 if it does not exist."""
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
        """Assert that all messages are acknowledged: none is queued, delayed, dead or held by a
        consumer.
        """
        self.until(self.is_empty, "all is taken")
        time.sleep(0.3)  # for acknowledgements in transit
        for process in self._processes:
            process.terminate()  # Celery's workers delay them, and send them now
            process.wait(15)
        self.until(lambda: not self.consumers(), "the broker has noticed")
        assert self.is_empty(), self.log

    def is_empty(self) -> bool:
        return not any(
            map(self.length, (self.queue, f"{self.queue}.later.1", f"{self.queue}.dead"))
        )

    def consumers(self) -> int:
        with self._connection.channel() as channel:
            return int(channel.queue_declare(self.queue, passive=True).method.consumer_count)

    def purge(self) -> None:
        """Purge the queue, and what a killed process held: that returns once the broker notices."""
        self.until(lambda: not self.consumers(), "the broker has noticed")
        with self._connection.channel() as channel:
            channel.queue_purge(self.queue)
