"""SQS FIFO and EventBridge, over a server like AWS's: what arrives, what is a duplicate there, and
whose fault a failure is.

moto differs from AWS in what is tested here: it takes a group's id with any characters, and events
of any size. ministack takes an event for a bus that is not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from cloudevents.core.exceptions import CloudEventValidationError

from django_idempotency.contrib.outbox.publishers import aws as ours
from django_idempotency.contrib.outbox.publishers.aws import Refused
from django_idempotency.contrib.outbox.publishers.eventbridge import EventBridgePublisher
from django_idempotency.contrib.outbox.publishers.sqs import GROUP, SQSPublisher, group
from django_idempotency.errors import BrokerUnavailable

from ....support.store_servers import free_port
from .helpers import message

pytestmark = pytest.mark.slow  # moto's server takes two seconds to start


def sqs_publisher(aws: dict[str, Any], url: str, *, cloud_source: str = "") -> SQSPublisher:
    class Publisher(SQSPublisher):
        options = aws
        queue_url = url
        source = cloud_source

    return Publisher()


def received(sqs: Any, url: str) -> list[dict[str, Any]]:
    answer = sqs.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=10,
        MessageSystemAttributeNames=["All"],
        MessageAttributeNames=["All"],
    )
    return list(answer.get("Messages", []))


@pytest.fixture
def publisher(aws: dict[str, Any], sqs: Any, queue: str) -> Iterator[SQSPublisher]:
    with closing(sqs_publisher(aws, queue)) as publisher:
        yield publisher


# ----------------------------------------------------------------------------------------- SQS FIFO


def test_a_message(publisher: SQSPublisher, sqs: Any, queue: str) -> None:
    """Its id is the deduplication id, its key the group; what a consumer needs besides is in the
    attributes.
    """
    sent = message(headers={"tenant": "a"})
    publisher.publish(sent)
    (found,) = received(sqs, queue)
    assert json.loads(found["Body"]) == {"order": 7}
    assert found["Attributes"]["MessageDeduplicationId"] == str(sent.message_id)
    assert found["Attributes"]["MessageGroupId"] == "order-7"
    assert {name: value["StringValue"] for name, value in found["MessageAttributes"].items()} == {
        "tenant": "a",
        "topic": "order.paid",
        "content-type": "application/json",
    }


def test_a_duplicate(publisher: SQSPublisher, sqs: Any, queue: str) -> None:
    """After a crash SQS drops the second one, within its five minutes, and the order of a key
    stays.
    """
    first, second = message(payload=1), message(payload=2)
    for sent in (first, second, first, second):
        publisher.publish(sent)
    assert [found["Body"] for found in received(sqs, queue)] == ["1", "2"]


def test_a_cloud_event_in_a_queue(aws: dict[str, Any], sqs: Any, queue: str) -> None:
    with closing(sqs_publisher(aws, queue, cloud_source="/shop")) as publisher:
        publisher.publish(sent := message())
    assert json.loads(received(sqs, queue)[0]["Body"]) == {
        "specversion": "1.0",
        "id": str(sent.message_id),
        "source": "/shop",
        "type": "order.paid",
        "time": "2026-01-02T03:04:05Z",
        "datacontenttype": "application/json",
        "partitionkey": "order-7",
        "data": {"order": 7},
    }


@pytest.mark.parametrize("key", ["", "order-7", "order 7", "ü", "k" * 200])
def test_a_group(key: str) -> None:
    """Any key is a group that SQS takes, another for each key; without one each message is a group
    of its own.
    """
    sent = message(key=key)
    assert GROUP.fullmatch(group(sent))
    assert (group(sent) == group(message(key=key))) is bool(key)
    assert group(sent) != group(message(key=f"{key}!"))


def test_one_that_sqs_refuses(publisher: SQSPublisher, sqs: Any, queue: str) -> None:
    """It is the message's own fault, and the next one is taken."""
    with pytest.raises(Refused, match="InvalidParameterValue"):
        publisher.publish(message(payload="x" * 2_000_000))
    publisher.publish(message())
    assert len(received(sqs, queue)) == 1


# -------------------------------------------------------------------------------------- EventBridge


@pytest.fixture
def inbox(sqs: Any) -> str:
    """Return the address of a plain queue."""
    return str(sqs.create_queue(QueueName=str(uuid4()))["QueueUrl"])


@pytest.fixture
def events(aws: dict[str, Any], sqs: Any, inbox: str) -> Iterator[EventBridgePublisher]:
    """Return a publisher on a bus of its own, whose rule puts each event of the shop into the
    inbox.
    """
    arn = sqs.get_queue_attributes(QueueUrl=inbox, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    name = f"bus-{uuid4()}"
    bridge = boto3.client("events", **aws)
    bridge.create_event_bus(Name=name)
    bridge.put_rule(Name="all", EventBusName=name, EventPattern=json.dumps({"source": ["shop"]}))
    bridge.put_targets(Rule="all", EventBusName=name, Targets=[{"Id": "inbox", "Arn": arn}])
    bridge.close()

    class Publisher(EventBridgePublisher):
        options = aws
        source = "shop"
        bus = name

    with closing(Publisher()) as publisher:
        yield publisher


@pytest.mark.parametrize("payload", [{"order": 7}, [1, 2], "text", 0, None])
def test_an_event(events: EventBridgePublisher, sqs: Any, inbox: str, payload: Any) -> None:
    """Its detail is a CloudEvent, an object whatever the payload is; headers are in it, too."""
    events.publish(sent := message(payload=payload, headers={"traceparent": "00-1-2-03"}))
    event = json.loads(received(sqs, inbox)[0]["Body"])
    assert (event["source"], event["detail-type"]) == ("shop", "order.paid")
    detail = event["detail"]
    assert (detail["source"], detail["id"]) == ("shop", str(sent.message_id))
    assert (detail.get("data"), detail["traceparent"]) == (payload, "00-1-2-03")


def test_published_again(events: EventBridgePublisher, sqs: Any, inbox: str) -> None:
    """EventBridge's own id is another each time, and the CloudEvent's the same."""
    sent = message()
    for _ in range(2):
        events.publish(sent)
    one, two = (json.loads(found["Body"]) for found in received(sqs, inbox))
    assert one["id"] != two["id"]
    assert one["detail"]["id"] == two["detail"]["id"]


def test_a_header_that_is_no_extension(events: EventBridgePublisher) -> None:
    """It is refused with its reason, and not left out."""
    with pytest.raises(CloudEventValidationError, match="Trace-Id"):
        events.publish(message(headers={"Trace-Id": "1"}))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("MalformedDetail", Refused),
        ("NotAuthorizedForSourceException", Refused),
        ("ThrottlingException", BrokerUnavailable),
        ("InternalFailure", BrokerUnavailable),
    ],
)
def test_a_failed_entry(
    events: EventBridgePublisher, monkeypatch: pytest.MonkeyPatch, code: str, kind: type[Exception]
) -> None:
    """A 200 that counts a failed entry has published nothing."""
    answer = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": code, "ErrorMessage": "said"}]}
    monkeypatch.setattr(events._events, "put_events", lambda **_: answer)
    with pytest.raises(kind, match=f"{code}: said"):
        events.publish(message())


# ------------------------------------------------------------------------------------------- faults


@pytest.mark.skipif("os.environ.get('AWS_SERVER')", reason="ministack takes the event")
def test_a_bus_that_is_not_there(events: EventBridgePublisher) -> None:
    """The answer counts for the message: other buses may take others."""
    events.bus = "gone"
    with pytest.raises(Refused, match="ResourceNotFoundException"):
        events.publish(message())


def test_a_queue_that_is_not_there(publisher: SQSPublisher) -> None:
    publisher.queue_url += "x"
    with pytest.raises(Refused, match=re.escape("NonExistentQueue")):
        publisher.publish(message())


def test_a_service_that_is_away(aws: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens: that is nobody's own fault."""
    monkeypatch.setattr(ours, "TIMES", {"retries": {"total_max_attempts": 1}})
    url = f"http://127.0.0.1:{free_port()}"
    with closing(sqs_publisher({**aws, "endpoint_url": url}, f"{url}/1/q.fifo")) as publisher:
        with pytest.raises(BrokerUnavailable) as raised:
            publisher.publish(message())
        assert isinstance(raised.value.__cause__, EndpointConnectionError)
