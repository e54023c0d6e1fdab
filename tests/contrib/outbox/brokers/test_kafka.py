"""Kafka: what a record holds, when a message counts as published, and whose fault a failure is.

The cluster is librdkafka's own, which speaks Kafka's protocol over TCP, unless KAFKA_BOOTSTRAP
names another.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Record
from django.db import OperationalError

from django_idempotency.contrib.outbox.models import Message
from django_idempotency.contrib.outbox.publishers.kafka import KafkaPublisher, _whose
from django_idempotency.contrib.outbox.publishing import open_publisher
from django_idempotency.contrib.outbox.relaying import Relay
from django_idempotency.contrib.outbox.taking import Taker
from django_idempotency.errors import BrokerUnavailable

from ..helpers import committed, sent, waiting
from .conftest import Cluster, Read, kafka_class
from .helpers import message


def test_a_record(publisher: KafkaPublisher, read: Read, topic: str) -> None:
    """The message's key is the record's, its payload the value; the header `id` holds its id."""
    sent = message(topic=topic, headers={"tenant": "a", "attempt": 2})
    publisher.publish(sent)
    (record,) = read(topic, 1)
    assert (record.key(), record.value()) == (b"order-7", b'{"order": 7}')
    assert dict(record.headers() or ()) == {
        "tenant": b"a",
        "attempt": b"2",
        "content-type": b"application/json",
        "id": str(sent.message_id).encode(),
    }


def test_a_cloud_event(cluster: Cluster, read: Read, topic: str) -> None:
    publisher = kafka_class(cluster, cloud_source="/shop")()
    publisher.publish(message(topic=topic))
    (record,) = read(topic, 1)
    assert header(record, "content-type") == "application/cloudevents+json"
    assert json.loads(record.value() or "")["source"] == "/shop"
    publisher.close()


def test_without_a_key(publisher: KafkaPublisher, read: Read, topic: str) -> None:
    """It has no key: under an empty one all such messages would share a partition."""
    publisher.publish(message(topic=topic, key=""))
    assert read(topic, 1)[0].key() is None


@pytest.mark.parametrize(
    ("key", "digest"), [("21", -973932308), ("foobar", -790332482), ("abc", 479470107)]
)
def test_the_partition_of_a_key(
    publisher: KafkaPublisher, read: Read, topic: str, key: str, digest: int
) -> None:
    """It is the one that Java's client chooses: the digests are from the tests of its murmur2."""
    publisher.publish(message(topic=topic, key=key))
    (record,) = read(topic, 1)
    partitions = len(publisher._producer.list_topics(topic, timeout=10).topics[topic].partitions)
    assert record.partition() == (digest & 0x7FFFFFFF) % partitions


def test_one_that_is_refused_stops_no_other(
    publisher: KafkaPublisher, read: Read, topic: str
) -> None:
    """What is too large concerns the message alone, and the same producer goes on."""
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        publisher.publish(message(topic=topic, payload="x" * 2_000_000))
    publisher.publish(message(topic=topic))
    assert len(read(topic, 1)) == 1


@pytest.mark.parametrize(
    ("code", "fatal", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False, KafkaException),
        (KafkaError._UNKNOWN_TOPIC, False, KafkaException),
        (KafkaError._MSG_TIMED_OUT, False, BrokerUnavailable),
        (KafkaError.NOT_ENOUGH_REPLICAS, False, BrokerUnavailable),
        # This producer will send nothing more.
        (
            KafkaError.INVALID_RECORD,
            True,
            BrokerUnavailable,
        ),
    ],
)
def test_whose_fault(code: int, fatal: bool, kind: type[Exception]) -> None:
    assert type(_whose(KafkaError(code, fatal=fatal))) is kind


def test_weaker_than_acks_all(cluster: Cluster) -> None:
    """A configuration that would confirm a record on one broker alone is refused."""
    with pytest.raises(KafkaException, match="`acks` must be set to `all`"):
        kafka_class(cluster, config={"acks": 1})()


@pytest.mark.skipif("os.environ.get('KAFKA_BOOTSTRAP')", reason="it stops the cluster")
def test_away(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that is lost confirms nothing: neither a message nor the opening of the next
    publisher succeeds.
    """
    with closing(Cluster()) as cluster:
        publisher = kafka_class(cluster, config={"message.timeout.ms": 300})()
        publisher.publish(message(topic=topic))
    with pytest.raises(BrokerUnavailable, match="Kafka: KafkaError"):
        publisher.publish(message(topic=topic))
    publisher.close()
    assert len(publisher._producer) == 0  # nothing is left that could overtake
    monkeypatch.setattr("django_idempotency.contrib.outbox.publishers.kafka.OPENING", 0.3)

    with (
        pytest.raises(BrokerUnavailable, match="could not be opened"),
        open_publisher(kafka_class(cluster)),
    ):
        pass


def header(record: Record, name: str) -> str:
    value = dict(record.headers() or ())[name]
    assert isinstance(value, bytes)
    return value.decode()


@committed
@pytest.mark.any_database
def test_a_crash_between_publish_and_mark(
    publisher: KafkaPublisher, read: Read, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the batch is published once more, under the same ids and in order: duplicates, no
    loss.
    """
    ids = list(map(str, sent("a", "b", "a", "", "a", topic=topic)))
    relay = Relay(publisher.publish, using="default")

    def crash(*_: Any) -> bool:
        assert Message.objects.count() == len(ids)  # nothing is marked yet, all of it is confirmed
        raise OperationalError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Taker, "forget", crash)
        with pytest.raises(OperationalError):
            relay.batch()
    assert len(waiting()) == len(ids)
    again = [[str(each.message_id) for each in relay.batch().published] for _ in ids]
    assert again == [[each] for each in ids]  # each alone: the next death has only one to blame
    assert not relay.batch()
    assert waiting() == []
    records = defaultdict[Any, list[str]](list)
    for record in sorted(read(topic, 2 * len(ids)), key=lambda record: record.offset() or 0):
        records[record.key()].append(header(record, "id"))
    assert records == {b"a": [ids[0], ids[2], ids[4]] * 2, b"b": [ids[1]] * 2, None: [ids[3]] * 2}
