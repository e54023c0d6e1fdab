"""EventBridge, over boto3: `pip install "./django-idempotency[eventbridge]"`.

EventBridge gives an event a new `id` each time it is published, and it ignores a detail that is not
an object. So the detail is a CloudEvent always: consumers recognise a duplicate by `detail.[source,
id]`. EventBridge keeps no order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .aws import OverBoto, refusal, translated
from .bodies import cloud_event

if TYPE_CHECKING:
    from ..models import Message


class EventBridgePublisher(OverBoto):
    """Puts an event on a bus. The topic is its `detail-type`; headers are extensions of the
    CloudEvent.

    What is too large for EventBridge (over 256 KB until 2026, then over 1 MB) is refused, and
    waits.
    """

    #: Also the `Source` of the event, which rules match.
    source: str = ""
    bus: str = "default"

    def __init__(self) -> None:
        self._events = self.client("events")

    def publish(self, message: Message) -> None:
        """Return when EventBridge has taken the event.

        It answers 200 also when it has not, and counts those.
        """
        with translated():
            answer = self._events.put_events(
                Entries=[
                    {
                        "EventBusName": self.bus,
                        "Source": self.source,
                        "DetailType": message.topic,
                        "Time": message.created_at,
                        "Detail": cloud_event(message, self.source, **message.headers),
                    }
                ]
            )
        if answer["FailedEntryCount"]:
            (entry,) = answer["Entries"]
            raise refusal(entry["ErrorCode"], entry["ErrorMessage"])

    def close(self) -> None:
        self._events.close()
