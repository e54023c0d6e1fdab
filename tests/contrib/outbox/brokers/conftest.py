"""The brokers: a Kafka cluster, and moto's server for SQS and EventBridge."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import boto3
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from django_idempotency.contrib.outbox.publishers.kafka import KafkaPublisher

#: Consumer of a topic's records, in the order of their offsets.
Read = Callable[..., list[Message]]


class Cluster:
    """librdkafka's own, in memory: it speaks Kafka's protocol over TCP. `KAFKA_BOOTSTRAP` names
    another to test with.
    """

    def __init__(self) -> None:
        self._client: Producer | None = None
        self.bootstrap = os.environ.get("KAFKA_BOOTSTRAP", "")
        if not self.bootstrap:
            self._client = Producer({"test.mock.num.brokers": 1, "log_level": 0})
            brokers = self._client.list_topics(timeout=10).brokers.values()
            self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def stop(self) -> None:
        self._client = None


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Not session-wide: its threads would not survive a fork."""
    cluster = Cluster()
    yield cluster
    cluster.stop()


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid4().hex[:8]}"


@pytest.fixture
def read(cluster: Cluster) -> Iterator[Read]:
    """Return a function that reads as many records of a topic, from its beginning."""
    consumer = consumer_of(cluster)

    def read(topic: str, count: int) -> list[Message]:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        return [record for _ in range(count) if (record := consumer.poll(10))]

    yield read
    consumer.close()


def consumer_of(cluster: Cluster) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"ledger-{uuid4().hex[:8]}",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "fetch.error.backoff.ms": 10,
            "log_level": 0,
        }
    )


def kafka_class(
    cluster: Cluster, *, cloud_source: str = "", config: Mapping[str, Any] = {}
) -> type[KafkaPublisher]:
    """Return a class as OUTBOX_PUBLISHER names one."""

    given = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, **config}

    class Publisher(KafkaPublisher):
        config = given
        source = cloud_source

    return Publisher


@pytest.fixture(scope="module")
def publisher(cluster: Cluster) -> Iterator[KafkaPublisher]:
    publisher = kafka_class(cluster)()
    yield publisher
    publisher.close()


@pytest.fixture(scope="module")
def aws() -> Iterator[dict[str, Any]]:
    """Return what boto3.client() takes to reach moto's server.

    Not session-wide: its threads outlive a fork.
    """
    from moto.server import ThreadedMotoServer  # not at the top: it takes a second

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {
        "endpoint_url": f"http://{host}:{port}",
        "region_name": "eu-central-1",
        "aws_access_key_id": "testing",
        "aws_secret_access_key": "testing",
    }
    server.stop()


@pytest.fixture
def sqs(aws: dict[str, Any]) -> Iterator[Any]:
    client = boto3.client("sqs", **aws)
    yield client
    client.close()


@pytest.fixture
def queue(sqs: Any) -> str:
    """Return the address of a FIFO queue."""
    return str(
        sqs.create_queue(QueueName=f"{uuid4()}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    )
