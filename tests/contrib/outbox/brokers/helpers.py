"""Messages as a relay hands them over, without a database."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from django_idempotency.contrib.outbox.models import Message

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def message(**said: Any) -> Message:
    given = {
        "topic": "order.paid",
        "key": "order-7",
        "payload": {"order": 7},
        "headers": {},
        "created_at": AT,
        **said,
    }
    return Message(**given)
