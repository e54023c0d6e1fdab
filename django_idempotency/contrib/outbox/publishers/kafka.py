"""Kafka, over confluent-kafka: `pip install "./django-idempotency[kafka]"`.

The topic is the topic, and the message's key the record's: one partition, so one order. The header
`id` holds the message's id, as Debezium's event router writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ....errors import BrokerUnavailable
from .bodies import Bodies

if TYPE_CHECKING:
    from ..models import Message

#: Seconds until a producer that is being opened must have reached a broker.
OPENING = 10.0
#: Errors about one record. All others, above all a time-out, are the broker's: a new producer tries
#: again.
REFUSED = frozenset(
    {
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._INVALID_ARG,  # noqa: SLF001 - librdkafka's own errors, before anything is sent
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    }
)
DEFAULTS = {
    "acks": "all",
    "linger.ms": 0,  # each record is awaited: nothing comes to share its batch
    "message.timeout.ms": 10_000,  # a transaction of the database is open meanwhile
    # below it, or an unknown topic looks like a lost broker
    "topic.metadata.propagation.max.ms": 5_000,
    "partitioner": "murmur2_random",  # as the Java client chooses
}


class KafkaPublisher(Bodies):
    """Publishes with `acks=all` and `enable.idempotence`, and returns when all in-sync replicas
    have the record.
    """

    #: librdkafka's configuration, such as `bootstrap.servers`. It overrides `DEFAULTS`; `acks=1` it
    #: refuses itself.
    config: Mapping[str, Any] = {}

    def __init__(self) -> None:
        config = {**DEFAULTS, **self.config, "enable.idempotence": True}
        #: Longer than librdkafka tries, so that there is a report.
        self._patience = float(config["message.timeout.ms"]) / 1000 + 5
        self._producer = Producer(config)
        # Raises while Kafka is away, before a message is blamed.
        self._producer.list_topics(timeout=OPENING)

    def publish(self, message: Message) -> None:
        """Return when Kafka has confirmed the message.

        Raises `BrokerUnavailable` while it does not.
        """
        body, media_type = self.body(message)
        headers = {
            **self.headers(message),
            "content-type": media_type,
            "id": str(message.message_id),
        }
        reports: list[KafkaError | None] = []
        try:
            self._producer.produce(
                message.topic,
                body.encode(),
                message.key.encode()
                or None,  # an empty key would put all of them into one partition
                headers={name: value.encode() for name, value in headers.items()},
                on_delivery=lambda failure, _: reports.append(failure),
            )
            self._producer.flush(self._patience)
        except KafkaException as error:
            raise _whose(error.args[0]) from error
        failure = reports[0] if reports else KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001
        if failure is not None:
            raise _whose(failure)

    def close(self) -> None:
        """Forget what is not confirmed: it must not arrive after what the next producer sends."""
        self._producer.purge()
        self._producer.flush(1)


def _whose(failure: KafkaError) -> Exception:
    """Return the exception for a record that is not confirmed.

    A producer with a fatal error is of no more use.
    """
    if failure.code() in REFUSED and not failure.fatal():
        return KafkaException(failure)
    return BrokerUnavailable(f"Kafka: {failure}")
