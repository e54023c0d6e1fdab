"""The brokers: a Kafka cluster, and a server like AWS's for SQS and EventBridge."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any
from uuid import uuid4

import boto3
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from django_idempotency.contrib.outbox.publishers.kafka import KafkaPublisher

from ....support.store_servers import KafkaServer, aws_server

#: Consumer of a topic's records, in the order of their offsets.
Read = Callable[..., list[Message]]


class Cluster:
    """librdkafka's own, in memory: it speaks Kafka's protocol over TCP. KAFKA_SERVER names the
    program of another, and KAFKA_BOOTSTRAP the address of one that runs.
    """

    def __init__(self) -> None:
        self._client: Producer | None = None
        self._server: KafkaServer | None = None
        self.bootstrap = os.environ.get("KAFKA_BOOTSTRAP", "")
        if os.environ.get("KAFKA_SERVER"):
            self._server = KafkaServer()
            self._server.start()
            self.bootstrap = self._server.bootstrap
        elif not self.bootstrap:
            self._client = Producer({"test.mock.num.brokers": 1, "log_level": 0})
            brokers = self._client.list_topics(timeout=10).brokers.values()
            self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def close(self) -> None:
        self._client = None
        if self._server is not None:
            self._server.kill()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Not session-wide: its threads would not survive a fork."""
    with closing(Cluster()) as cluster:
        yield cluster


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
    """Return what boto3.client() takes to reach a server like AWS's.

    Not session-wide: its threads outlive a fork.
    """
    with aws_server() as url:
        yield {
            "endpoint_url": url,
            "region_name": "eu-central-1",
            "aws_access_key_id": "testing",
            "aws_secret_access_key": "testing",
        }


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
