"""Messages, and publishers that remember or fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import DEFAULT_DB_ALIAS, transaction

from django_idempotency.contrib import outbox
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.contrib.outbox.relaying import Relay

#: Statements commit, as on a server. Afterwards only these tables are emptied, which is faster than
#: emptying all.
committed = pytest.mark.django_db(
    transaction=True,
    available_apps=[
        "django_idempotency",
        "django_idempotency.contrib.outbox",
        "testproject.payments",
    ],
)


def sent(*keys: str, topic: str = "topic") -> list[UUID]:
    """Send a message for each key, each in a transaction of its own; the payload is its number."""
    ids = []
    for number, key in enumerate(keys):
        with transaction.atomic():
            ids.append(outbox.send(topic, number, key=key))
    return ids


def waiting() -> list[tuple[str, Any]]:
    """Return key and payload of what is in the outbox, in order."""
    return list(Message.objects.order_by("pk").values_list("key", "payload"))


class Recorder:
    """A publisher that records messages, and fails for the keys and payloads in `bad`."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.bad: set[Any] = set()
        self.error: Exception = ValueError("no such exchange")
        #: Called before each message.
        self.before: Callable[[Message], object] = lambda message: None

    def publish(self, message: Message) -> None:
        self.before(message)
        if message.key in self.bad or message.payload in self.bad:
            raise self.error
        self.seen.append((message.key, message.payload))

    def relay(self, **options: Any) -> Relay:
        return Relay(self.publish, **{"using": DEFAULT_DB_ALIAS, **options})


def numbers(seen: list[tuple[str, Any]], key: str) -> list[Any]:
    return [payload for found, payload in seen if found == key]
