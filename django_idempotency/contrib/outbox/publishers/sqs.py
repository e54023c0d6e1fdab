"""SQS FIFO, over boto3: `pip install "./django-idempotency[sqs]"`.

`MessageDeduplicationId` is the message's id. SQS drops its duplicates for **five minutes** only: a
relay that was down for longer sends a second one, so the consumer remembers the id, too. It is in
`attributes.MessageDeduplicationId`; SQS's own `messageId` is new with each sending.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

from .aws import OverBoto, translated
from .bodies import Bodies

if TYPE_CHECKING:
    from ..models import Message

#: What a `MessageGroupId` may be.
GROUP = re.compile(r"[!-~]{1,128}")


class SQSPublisher(OverBoto, Bodies):
    """Publishes to a FIFO queue. The message's key is its `MessageGroupId`: SQS keeps the order of
    a group.
    """

    queue_url: str = ""

    def __init__(self) -> None:
        self._sqs = self.client("sqs")

    def queue_for(self, message: Message) -> str:
        """Return the URL of the queue for a message."""
        return self.queue_url

    def publish(self, message: Message) -> None:
        """Return when SQS has taken the message, or knows it already."""
        body, media_type = self.body(message)
        attributes = {**self.headers(message), "content-type": media_type, "topic": message.topic}
        with translated():
            self._sqs.send_message(
                QueueUrl=self.queue_for(message),
                MessageBody=body,
                MessageDeduplicationId=str(message.message_id),
                MessageGroupId=group(message),
                MessageAttributes={
                    name: {"DataType": "String", "StringValue": value}
                    for name, value in attributes.items()
                },
            )

    def close(self) -> None:
        self._sqs.close()


def group(message: Message) -> str:
    """Return the key, or a digest of one that SQS cannot take.

    Without a key each message is a group of its own.
    """
    key = message.key or str(message.message_id)
    return key if GROUP.fullmatch(key) else sha256(key.encode()).hexdigest()
