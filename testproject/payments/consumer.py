"""A RabbitMQ consumer that knows nothing of payments: each message has its effect once, and none is
lost.

    queue ──► handler, under the message's id ──► acknowledged
      ▲         │ not yet, or failed          └─► queue.dead: can never work, or failed too often
      └── queue.later.1, .2, .4 …

If a consumer dies, its message stays with the broker, which delivers it again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from django.db import close_old_connections
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic

from django_idempotency.contrib.batches.messages import (
    LIMIT,
    Acknowledge,
    DeadLetter,
    Redeliver,
    disposition,
)

logger = logging.getLogger(__name__)

#: Takes a message's id and its content.
Handler = Callable[[str | None, Any], object]

#: Our header on a message that returns: how often its handler has failed.
FAILURES = "x-failures"
#: A message that kills its consumer more often than this becomes a dead letter, too. The broker
#: counts.
CRASHES = 10


def consume(
    channel: BlockingChannel,
    queue: str,
    handler: Handler,
    *,
    limit: int = LIMIT,
    answers: type[Exception] | tuple[type[Exception], ...] = (),
) -> None:
    """Take messages one by one until the connection ends.

    See `disposition` for `limit` and `answers`.
    """
    declare(channel, queue)
    channel.confirm_delivery()  # a publish returns when the broker has the message, or raises
    channel.basic_qos(prefetch_count=1)

    def receive(
        _: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, body: bytes
    ) -> None:
        failures = int((properties.headers or {}).get(FAILURES, 0))
        error = attempted(handler, properties, body)
        match disposition(error, failures=failures, limit=limit, answers=answers):
            case Acknowledge():
                channel.basic_ack(method.delivery_tag)
            case Redeliver() as later:
                # Its copy first. Who dies between these lines leaves two, and their id makes them
                # one again.
                put_off(channel, queue, properties, body, later)
                channel.basic_ack(method.delivery_tag)
            case DeadLetter():
                channel.basic_reject(method.delivery_tag, requeue=False)

    channel.basic_consume(queue, receive)
    channel.start_consuming()


def attempted(handler: Handler, properties: BasicProperties, body: bytes) -> Exception | None:
    """Handle a message. Return the exception that it raised, if any."""
    close_old_connections()  # as Django does around a request
    try:
        handler(properties.message_id, json.loads(body))
    except Exception as error:  # noqa: BLE001 - the table decides about it
        logger.warning("Message %s ended with %r.", properties.message_id, error)
        return error
    finally:
        close_old_connections()
    return None


# ---- The queues
# --------------------------------------------------------------------------------------------------


def declare(channel: BlockingChannel, queue: str) -> None:
    """Declare a queue and its dead letters."""
    channel.queue_declare(dead(queue), durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_declare(
        queue, durable=True, arguments={**leading_to(dead(queue)), "x-delivery-limit": CRASHES}
    )


def dead(queue: str) -> str:
    """Return the name of the queue whose messages wait for a person."""
    return f"{queue}.dead"


def leading_to(queue: str) -> dict[str, Any]:
    """Return the arguments of a queue that passes rejected and expired messages to another one
    without losing any.
    """
    return {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue,
        # the default may lose a message when the broker dies
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",  # required by that strategy
    }


def put_off(
    channel: BlockingChannel,
    queue: str,
    properties: BasicProperties,
    body: bytes,
    redeliver: Redeliver,
) -> None:
    """Let a message wait outside for 1, 2, 4 … seconds.

    Each pause has its own queue: only a queue's head expires.
    """
    pause = 1 << (redeliver.after - 1).bit_length()
    later = f"{queue}.later.{pause}"
    channel.queue_declare(
        later, durable=True, arguments={**leading_to(queue), "x-message-ttl": pause * 1000}
    )
    properties.headers = {**(properties.headers or {}), FAILURES: redeliver.failures}
    channel.basic_publish("", later, body, properties, mandatory=True)
