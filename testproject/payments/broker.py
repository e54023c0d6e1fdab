"""Publish the outbox to RabbitMQ: `manage.py idempotency_relay --publisher
testproject.payments.broker.RabbitMQ`.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pika
from pika.exceptions import (
    AMQPError,
    NackError,
    ShortStringTooLong,
    UnroutableError,
    UnsupportedAMQPFieldException,
)

from django_idempotency.contrib.outbox import BrokerUnavailable
from django_idempotency.contrib.outbox.models import Message

#: Topics are its routing keys.
EXCHANGE = "payments"
#: Errors that concern one message: refused, without a queue, or not AMQP (a topic over 255 bytes, a
#: float in a header).
REFUSED = (NackError, UnroutableError, ShortStringTooLong, UnsupportedAMQPFieldException)


class RabbitMQ:
    """Publishes to an exchange. A published message is on the broker's disk, in a queue."""

    def __init__(self) -> None:
        self._connection: Any = None
        self._connect()

    def publish(self, message: Message) -> None:
        """Return when the broker has confirmed.

        Raises `UnroutableError` if no queue takes the topic.
        """
        if not self._is_alive():
            self._connect()
        try:
            self._channel.basic_publish(
                exchange=EXCHANGE,
                routing_key=message.topic,
                body=json.dumps(message.payload).encode(),
                properties=pika.BasicProperties(
                    message_id=str(message.message_id),
                    headers=message.headers,
                    content_type="application/json",
                    delivery_mode=pika.DeliveryMode.Persistent,
                ),
                mandatory=True,
            )
        except REFUSED:
            raise  # it waits, and the others continue
        except AMQPError as error:
            raise BrokerUnavailable(repr(error)) from error

    def close(self) -> None:
        self._connection.close()

    def _connect(self) -> None:
        try:
            self._connection = pika.BlockingConnection(
                pika.URLParameters(os.environ["RABBITMQ_URL"])
            )
            self._channel = self._connection.channel()
            self._channel.exchange_declare(EXCHANGE, "topic", durable=True)
            self._channel.confirm_delivery()
        except (AMQPError, OSError) as error:  # OSError: its name cannot be resolved
            raise BrokerUnavailable(repr(error)) from error

    def _is_alive(self) -> bool:
        """Respond to the broker's heartbeats. After a long silence it has closed the connection."""
        try:
            self._connection.process_data_events()
        except AMQPError:
            return False
        return bool(self._connection.is_open)
