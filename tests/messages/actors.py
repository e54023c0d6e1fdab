"""The processes of a shop with an outbox: a producer, a relay's publisher and a consumer.

    python -m tests.messages.actors produce NUMBER | consume

Each works until the file `stop` appears, and is killed once where a file `<point>.kill` says so.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import django
import pika
from pika.exceptions import AMQPError

FOLDER = "ACTORS_FOLDER"
QUEUE = "ledger"
#: Seconds between two messages of one producer, and the customers of each: the key of a message.
PACE, CUSTOMERS = 0.05, 3
#: The points where an actor can be killed.
POINTS = (
    "published",  # the relay: the broker has confirmed, the outbox still has the message
    "booked",  # the consumer: the effect is written, not committed
    "acking",  # the consumer: all is committed, the broker does not know
)


def folder() -> Path:
    return Path(os.environ[FOLDER])


def reach(point: str) -> None:
    try:
        (folder() / f"{point}.kill").rename(folder() / f"{point}.killed")
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def stopping() -> bool:
    return (folder() / "stop").exists()


# ------------------------------------------------------------------------------------- the producer


def produce(producer: str) -> None:
    """Write effects, each with its message."""
    from django.db import transaction

    from django_idempotency.contrib import outbox
    from testproject.payments.models import Effect

    number = 0
    while not stopping():
        customer = f"{producer}-{number % CUSTOMERS}"
        with transaction.atomic():
            message_id = outbox.send(
                "payment.created", {"customer": customer, "number": number}, key=customer
            )
            Effect.objects.create(label="sent", idempotency_key=str(message_id))
        number += 1
        time.sleep(PACE)


# ---------------------------------------------------------------------------------------- the relay


def __getattr__(name: str) -> Any:
    """Make `Publisher` when the relay asks for it: by then Django is set up."""
    if name != "Publisher":
        raise AttributeError(name)
    from testproject.payments.broker import RabbitMQ

    class Publisher(RabbitMQ):
        def publish(self, message: Any) -> None:
            super().publish(message)
            reach("published")

    return Publisher


# ------------------------------------------------------------------------------------- the consumer


def declare(channel: Any) -> None:
    channel.exchange_declare("payments", "topic", durable=True)
    channel.queue_declare(QUEUE, durable=True)
    channel.queue_bind(QUEUE, "payments", "payment.*")


def consume() -> None:
    """Book each message once, however often it arrives. Reconnect to a broker that was lost."""
    while not stopping():
        try:
            with pika.BlockingConnection(
                pika.URLParameters(os.environ["RABBITMQ_URL"])
            ) as connection:
                deliver(connection.channel())
        except AMQPError:
            time.sleep(0.2)


def deliver(channel: Any) -> None:
    from django_idempotency import idempotent_function
    from django_idempotency.errors import InProgress
    from testproject.payments.models import Effect

    @idempotent_function(key="message_id", key_prefix="ledger", guarantee="atomic")
    def book(message_id: str, payload: dict[str, Any]) -> int:
        effect = Effect.objects.create(
            label=f"booked {payload['customer']}", idempotency_key=message_id
        )
        Effect.objects.filter(pk=effect.pk).update(attempt=payload["number"])
        reach("booked")
        return effect.pk

    def insist(message_id: str, payload: dict[str, Any]) -> None:
        while True:
            try:
                book(message_id, payload)
            except (
                InProgress
            ) as busy:  # its earlier owner died a moment ago; the next message must not overtake it
                time.sleep(busy.retry_in or 1)
            else:
                return

    declare(channel)
    channel.basic_qos(prefetch_count=20)
    for method, properties, body in channel.consume(QUEUE, inactivity_timeout=0.2):
        if stopping():
            return
        if method is None:
            continue
        with (folder() / "deliveries").open("a") as deliveries:
            deliveries.write(f"{properties.message_id}\n")
        insist(properties.message_id, json.loads(body))
        reach("acking")
        channel.basic_ack(method.delivery_tag)


if __name__ == "__main__":
    django.setup()
    if sys.argv[1] == "produce":
        produce(sys.argv[2])
    else:
        consume()
