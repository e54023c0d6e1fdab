"""A row of the table as a record of the core, for display in the admin and in a terminal."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from ..core.records import MISSING, Guarantee, Outcome, Record, Status
from ..errors import RecordUnreadable
from ..models import IdempotencyRecord
from ..stores.orm.statements import outcome_of as read


def facts(row: IdempotencyRecord, **more: Any) -> Record:
    """Return a row as a record, at the database's time. The response is not loaded.

    Raises `RecordUnreadable` for a row that a later version or other software wrote.
    """
    read_at: datetime = getattr(row, "read_at")  # noqa: B009 - annotated by the page's queryset
    try:
        return Record(
            id=row.id,
            scope=row.scope,
            key=row.key,
            digest=bytes(row.digest),
            status=Status(row.status),
            owner=row.owner,
            attempt=row.attempt,
            guarantee=Guarantee(row.guarantee),
            lease_until=row.lease_until,
            created_at=row.created_at,
            completed_at=row.completed_at,
            expires_at=row.expires_at,
            purge_at=row.purge_at,
            read_at=read_at,
            operation=row.operation,
            **more,
        )
    except (TypeError, ValueError) as error:
        raise RecordUnreadable from error


def whole(row: IdempotencyRecord) -> Record:
    """Return a row with its response, as the store would read it."""
    stored = row.response_status, row.response_headers, row.response_body
    return facts(row, outcome=read(*stored) if row.status == Status.COMPLETED else None)


def outcome_of(row: IdempotencyRecord) -> Outcome | None:
    """Return a row's response, or `None` if it has none. Unreadable headers are left out."""
    if row.response_status is None:
        return None
    body = MISSING if row.response_body is None else bytes(row.response_body)
    return Outcome(status=row.response_status, headers=_headers(row.response_headers), body=body)


def _headers(stored: str) -> tuple[tuple[str, str], ...]:
    """Parse stored headers; return none for a row that other software wrote."""
    try:
        return tuple((str(name), str(value)) for name, value in json.loads(stored))
    except (ValueError, TypeError):
        return ()
