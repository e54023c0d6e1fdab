"""What the page names as the key of a message, on documents as its services deliver them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from django_idempotency import idempotent_function

from .pages import checked, code

KEYS = {row[0]: code(row[1]) for row in checked("how-to/tasks-and-messages.md", "message keys")}
CLOUD_EVENT = {
    "specversion": "1.0",
    "id": "m-1",
    "source": "/shop",
    "type": "order.paid",
    "data": {"order": 7},
}
#: What another delivery of the same message changes; AWS's own ids are those of its documentation.
BRIDGED = {
    "version": "0",
    "id": "17793124",
    "detail-type": "order.paid",
    "source": "shop",
    "time": "2026-01-01T00:00:00Z",
}
SQS = {
    "messageId": "059f36b4",
    "receiptHandle": "AQEB",
    "body": "{}",
    "attributes": {
        "ApproximateReceiveCount": "1",
        "MessageDeduplicationId": "m-1",
        "MessageGroupId": "order-7",
    },
}
SNS = {
    "EventSource": "aws:sns",
    "Sns": {"MessageId": "95df01b4", "Timestamp": "2026-01-01T00:00:00Z", "Message": "{}"},
}

#: Origin → a delivery, where its id is, and what is new when it comes again.
DELIVERIES: dict[str, tuple[dict[str, Any], str, str]] = {
    "a CloudEvent": (CLOUD_EVENT, "id", "time"),
    "EventBridge, from our outbox": ({**BRIDGED, "detail": CLOUD_EVENT}, "detail.id", "id"),
    "EventBridge, from others": ({**BRIDGED, "detail": {"order": 7}}, "id", "time"),
    "SNS, on Lambda": (SNS, "Sns.MessageId", "Sns.Timestamp"),
    "SQS FIFO, from our outbox, on Lambda": (SQS, "attributes.MessageDeduplicationId", "messageId"),
    "SQS, from others": (SQS, "messageId", "receiptHandle"),
}


def changed(document: dict[str, Any], path: str) -> dict[str, Any]:
    copy = deepcopy(document)
    *way, last = path.split(".")
    inner = copy
    for name in way:
        inner = inner[name]
    inner[last] = "another"
    return copy


@pytest.mark.any_database
@pytest.mark.django_db
@pytest.mark.parametrize("origin", KEYS)
def test_a_key(origin: str) -> None:
    """The same message again is a replay, whatever else is new in its delivery; another is carried
    out.
    """
    document, identity, rest = DELIVERIES[origin]
    done = []
    root = KEYS[origin].partition(".")[0]
    assert root in ("event", "record")

    @idempotent_function(
        key=KEYS[origin].replace(root, "event", 1), required=True, key_prefix=f"keys {origin}"
    )
    def handle(event: dict[str, Any]) -> None:
        done.append(event)

    for delivery in (document, changed(document, rest), changed(document, identity), document):
        handle(delivery)
    assert done == [document, changed(document, identity)]


@pytest.mark.any_database
@pytest.mark.django_db
def test_two_sources() -> None:
    """An id identifies a CloudEvent within its source only."""
    done = []

    @idempotent_function(key=KEYS["a CloudEvent"], required=True, key_prefix="sources")
    def handle(event: dict[str, Any]) -> None:
        done.append(event["source"])

    for source in ("/shop", "/warehouse", "/shop"):
        handle({**CLOUD_EVENT, "source": source})
    assert done == ["/shop", "/warehouse"]


def test_every_origin() -> None:
    assert set(KEYS) == set(DELIVERIES)
