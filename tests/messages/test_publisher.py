"""The publisher of the testproject, without a broker: which faults are the broker's, and which a
message's own.
"""

from __future__ import annotations

import socket
from typing import Any

import pika
import pytest
from pika.spec import Basic

from django_idempotency.contrib.outbox import BrokerUnavailable
from django_idempotency.contrib.outbox.models import Message
from testproject.payments import broker


class Encoding:
    """A channel that encodes a message as AMQP, and sends it nowhere."""

    def basic_publish(self, *, exchange: str, routing_key: str, properties: Any, **_: Any) -> None:
        Basic.Publish(exchange=exchange, routing_key=routing_key).encode()
        properties.encode()


class Publisher(broker.RabbitMQ):
    def _connect(self) -> None:
        self._channel = Encoding()

    def _is_alive(self) -> bool:
        return True


@pytest.mark.parametrize(
    "message",
    [
        Message(topic="ü" * 200, payload=0),  # 400 bytes, and AMQP takes 255
        Message(topic="topic", payload=0, headers={"rate": 0.5}),  # pika writes no floats
        Message(topic="topic", payload=0, headers={"n" * 300: 1}),
    ],
    ids=["topic", "float", "name"],
)
def test_what_amqp_cannot_say_is_the_fault_of_its_message(message: Message) -> None:
    """Mistaken for an unreachable broker, each would delay all others for ten seconds."""
    with pytest.raises(Exception, match=r".") as raised:
        Publisher().publish(message)
    assert isinstance(raised.value, broker.REFUSED)


def test_a_name_that_cannot_be_resolved_is_the_fault_of_no_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise each message of a batch would fail, and wait for longer than the broker is away."""

    def unknown(_: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setenv("RABBITMQ_URL", "amqp://broker/")
    monkeypatch.setattr(pika, "BlockingConnection", unknown)
    with pytest.raises(BrokerUnavailable):
        broker.RabbitMQ()
