"""What is sent of a message: its payload as JSON, or a CloudEvent around it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..models import Message

JSON = "application/json"
CLOUD_EVENT = "application/cloudevents+json"


class Bodies:
    """What the publishers share."""

    #: The `source` of CloudEvents, such as "/shop". Without one the payload is the body.
    source: str = ""

    def body(self, message: Message) -> tuple[str, str]:
        """Return a message's body and its media type."""
        if self.source:
            return cloud_event(message, self.source), CLOUD_EVENT
        return json.dumps(message.payload), JSON

    def headers(self, message: Message) -> dict[str, str]:
        """Return a message's headers as text: what is not text as JSON."""
        return {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in message.headers.items()
        }


def cloud_event(message: Message, source: str, **extensions: Any) -> str:
    """Return a message as a CloudEvent 1.0 in JSON.

    `source` and `id` identify it, however often it is published.

    Raises `CloudEventValidationError` for extensions whose names are more than `a` to `z` and
    digits.
    """
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v1.event import CloudEvent

    attributes = {
        **extensions,
        "id": str(message.message_id),
        "source": source,
        "type": message.topic,
        "time": message.created_at,
        "datacontenttype": JSON,
    }
    if message.key:
        attributes["partitionkey"] = message.key
    return JSONFormat().write(CloudEvent(attributes, message.payload)).decode()
