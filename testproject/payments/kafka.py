"""A Kafka consumer that knows nothing of payments: an offset is committed once its message has
settled, never before.

If a consumer dies, or loses its partition, the next one gets what was not committed again, and the
key recognises it. Kafka does not count that. So who takes up a partition notes beside its offset
that its first record is tried: a record that kills its consumers is a dead letter after `LIMIT` of
those.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from django.db import close_old_connections

from django_idempotency.contrib.batches.messages import LIMIT, DeadLetter, Redeliver, disposition

logger = logging.getLogger(__name__)

#: Takes a message's id and its content.
Handler = Callable[[str, Any], object]


def message_id(record: Message) -> str:
    """Return the header `id`, as our outbox and Debezium write it; else the place, which a second
    publishing changes.
    """
    name = dict(record.headers() or ()).get("id")
    return (
        name.decode()
        if isinstance(name, bytes)
        else f"{record.topic()}-{record.partition()}-{record.offset()}"
    )


def consume(
    consumer: Consumer,
    handler: Handler,
    dead: Producer,
    *,
    answers: type[Exception] | tuple[type[Exception], ...] = (),
    stopping: Callable[[], bool] = lambda: False,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Take records one by one, with `enable.auto.commit` off.

    Dead letters go to the topic `….dead`, in order.
    """
    failed = defaultdict[tuple[str, int], int](int)
    begun = set[tuple[str, int]]()
    while not stopping():
        record = consumer.poll(1.0)
        if record is None or record.error():
            continue
        place = str(record.topic()), int(record.partition() or 0)
        # What killed the last consumer is the first record.
        deaths = 0 if place in begun else noted(consumer, record)
        begun.add(place)
        error = attempted(handler, record) if deaths < LIMIT else None
        match (
            DeadLetter()
            if deaths >= LIMIT
            else disposition(error, failures=failed[place], answers=answers)
        ):
            case Redeliver(after=after, failures=failures):
                failed[place] = failures
                sleep(after)  # a minute at most: less than max.poll.interval.ms
                consumer.seek(TopicPartition(*place, int(record.offset() or 0)))
                continue  # nothing of its partition overtakes it
            case DeadLetter():
                bury(dead, record)
        failed.pop(place, None)
        with suppress(KafkaException):  # another has the partition now: it gets the record again
            consumer.commit(message=record, asynchronous=False)


def noted(consumer: Consumer, record: Message) -> int:
    """Note, before it is made, that a record is tried by who takes up its partition.

    Return how often that was noted before.
    """
    place = TopicPartition(str(record.topic()), int(record.partition() or 0))
    try:
        (known,) = consumer.committed([place], timeout=10)
        before = int(known.metadata or 0) if known.offset == record.offset() else 0
        place = TopicPartition(
            place.topic, place.partition, int(record.offset() or 0), str(before + 1)
        )
        consumer.commit(offsets=[place], asynchronous=False)
    except KafkaException:  # another has the partition now
        return 0
    if before >= LIMIT:
        logger.error(
            "Message %s is a dead letter: consumers died when they tried it, %d times.",
            message_id(record),
            before,
        )
    return before


def attempted(handler: Handler, record: Message) -> Exception | None:
    """Handle a record. Return the exception that it raised, if any."""
    close_old_connections()  # as Django does around a request
    try:
        handler(message_id(record), json.loads(record.value() or b"null"))
    except Exception as error:  # noqa: BLE001 - the table decides about it
        logger.warning("Message %s ended with %r.", message_id(record), error)
        return error
    finally:
        close_old_connections()
    return None


def bury(dead: Producer, record: Message) -> None:
    """Copy a record to the dead letters, and return when it is there.

    Raises `KafkaException` if it is not.
    """
    errors: list[Any] = []
    headers = {**dict(record.headers() or ()), "id": message_id(record).encode()}
    dead.produce(
        f"{record.topic()}.dead",
        record.value(),
        record.key(),
        headers=headers,
        on_delivery=lambda error, _: errors.append(error),
    )
    dead.flush(30)
    if errors != [None]:
        raise KafkaException(*errors)
