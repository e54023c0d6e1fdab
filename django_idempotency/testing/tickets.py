"""Creates valid tickets for tests, which name only the fields that they test."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

from ..core import hashing
from ..core.records import Guarantee, Ticket

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def make_ticket(
    *, key: str = "key-1", scope: str = "user:1", body: bytes = b"{}", **fields: Any
) -> Ticket:
    """Create a ticket with a new owner. The same key, scope and body are the same request."""
    ticket = Ticket(
        id=hashing.record_id(scope, key),
        scope=scope,
        key=key,
        digest=hashing.request_digest(body),
        owner=uuid4(),
        now=NOW,
        lease=30,
        ttl=86400,
        guarantee=Guarantee.LEASE,
        secret_id="5ec4e71d",  # noqa: S106 - the name of a secret, not a secret
        method="POST",
        path="/api/charges/",
    )
    return ticket._replace(**fields)
