"""The consumer on Kafka: what is committed when, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from django_idempotency import idempotent_function
from django_idempotency.contrib.outbox.publishers.kafka import KafkaPublisher
from django_idempotency.errors import RequestMismatch
from testproject.payments import kafka

from ..helpers import committed
from .conftest import Cluster, Read, consumer_of
from .helpers import message
from .test_kafka import header

#: It closes old connections around each record.
pytestmark = [pytest.mark.any_database, pytest.mark.django_db]


@pytest.fixture
def consumer(cluster: Cluster) -> Iterator[Consumer]:
    """Tests assign its partitions: to join a group takes three seconds."""
    consumer = consumer_of(cluster)
    yield consumer
    consumer.close()


class Ledger:
    """A handler that notes its calls, and how many records were committed before each."""

    def __init__(self, consumer: Consumer, topic: str, publisher: KafkaPublisher) -> None:
        self.consumer, self.topic, self.publisher = consumer, topic, publisher
        self.calls: list[tuple[str, Any]] = []
        self.committed: list[int] = []
        #: What the next attempts raise.
        self.errors: list[Exception] = []
        self.pauses: list[float] = []

    def publish(self, *payloads: Any) -> list[str]:
        """Publish under one key, so into one partition. Return the ids."""
        sent = [message(topic=self.topic, payload=payload) for payload in payloads]
        for each in sent:
            self.publisher.publish(each)
        return [str(each.message_id) for each in sent]

    def places(self) -> list[TopicPartition]:
        """Return where the group continues in each partition."""
        partitions = self.consumer.list_topics(self.topic, timeout=10).topics[self.topic].partitions
        found = self.consumer.committed(
            [TopicPartition(self.topic, each) for each in partitions], timeout=10
        )
        return [TopicPartition(self.topic, each.partition, max(each.offset, 0)) for each in found]

    def consume(self, until: int, handler: kafka.Handler | None = None) -> None:
        """Consume until so many calls were made and the last has settled."""
        self.consumer.assign(self.places())
        dead = Producer(
            {"bootstrap.servers": self.publisher.config["bootstrap.servers"], "log_level": 0}
        )
        kafka.consume(
            self.consumer,
            handler or self.handle,
            dead,
            stopping=lambda: len(self.calls) >= until or len(self.pauses) > 9,
            sleep=self.pauses.append,
        )
        dead.close()

    def handle(self, message_id: str, payload: Any) -> None:
        self.calls.append((message_id, payload))
        self.committed.append(sum(place.offset for place in self.places()))
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture
def ledger(consumer: Consumer, topic: str, publisher: KafkaPublisher) -> Ledger:
    return Ledger(consumer, topic, publisher)


def test_an_offset_is_committed_after_its_message(ledger: Ledger) -> None:
    """While a message is handled, only those before it are committed; the id is the message's."""
    ids = ledger.publish("one", "two", "three")
    ledger.consume(3)
    assert ledger.calls == list(zip(ids, ["one", "two", "three"], strict=True))
    assert ledger.committed == [0, 1, 2]


def test_one_that_dies_is_followed_by_another(ledger: Ledger) -> None:
    """What was not committed comes again."""

    class Killed(BaseException):
        pass

    def die(message_id: str, payload: Any) -> None:
        raise Killed

    ids = ledger.publish("one")
    with pytest.raises(Killed):
        ledger.consume(1, die)
    ledger.consume(1)
    assert ledger.calls == [(ids[0], "one")]


@pytest.mark.skipif("os.environ.get('KAFKA_SERVER')", reason="Tansu keeps no metadata of a commit")
def test_one_that_kills_its_consumers_is_a_dead_letter(
    ledger: Ledger, read: Read, topic: str
) -> None:
    """Each try of a first record is noted before it is made; after five the partition goes on."""

    class Killed(BaseException):
        pass

    tried: list[Any] = []

    def die(message_id: str, payload: Any) -> None:
        tried.append(payload)
        if payload == "two":
            raise Killed
        ledger.calls.append((message_id, payload))

    ids = ledger.publish("one", "two", "three")
    for _ in range(6):
        with pytest.raises(Killed):
            ledger.consume(3, die)
    ledger.consume(2, die)
    assert tried == ["one", *["two"] * 6, "three"]
    (buried,) = read(f"{topic}.dead", 1)
    assert (buried.value(), header(buried, "id")) == (b'"two"', ids[1])


def test_a_failure_comes_again_before_what_is_behind_it(ledger: Ledger) -> None:
    ledger.errors = [ValueError("no"), ValueError("not yet")]
    ledger.publish("one", "two")
    ledger.consume(4)
    assert [payload for _, payload in ledger.calls] == ["one", "one", "one", "two"]
    assert ledger.pauses == [1, 2]


def test_a_dead_letter(ledger: Ledger, read: Read, topic: str) -> None:
    """It is copied before its offset is committed, and the partition goes on."""
    ledger.errors = [RequestMismatch()]
    ids = ledger.publish("one", "two")
    ledger.consume(2)
    (buried,) = read(f"{topic}.dead", 1)
    assert (buried.value(), header(buried, "id")) == (b'"one"', ids[0])
    assert [payload for _, payload in ledger.calls] == ["one", "two"]


@committed
def test_twice_published_once_done(ledger: Ledger) -> None:
    """A relay that died between publishing and marking leaves two records with one id, and one
    effect.
    """
    effects: list[Any] = []

    @idempotent_function(key="message_id", required=True, key_prefix="ledger")
    def book(message_id: str, payload: Any) -> None:
        effects.append(payload)

    def handle(message_id: str, payload: Any) -> None:
        book(message_id, payload)
        ledger.calls.append((message_id, payload))

    sent = message(topic=ledger.topic, payload="one")
    for _ in range(2):
        ledger.publisher.publish(sent)
    ledger.consume(2, handle)
    assert (len(ledger.calls), effects) == (2, ["one"])


def test_without_the_header(cluster: Cluster, read: Read, topic: str) -> None:
    """A record of another producer is known by its place."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce(topic, json.dumps("one").encode())
    producer.flush(10)
    (record,) = read(topic, 1)
    assert kafka.message_id(record) == f"{topic}-{record.partition()}-0"
    producer.close()
