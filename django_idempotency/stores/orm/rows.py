"""The rows of the table, read as records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...core.records import GUARANTEES, MISSING, STATUSES, Outcome, Record, Status
from ...errors import RecordUnreadable
from ...models import IdempotencyRecord, InstantField

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

FIELDS = tuple(IdempotencyRecord._meta.concrete_fields)
#: The columns of a row that a statement has read, in order.
NAMES = (*(field.name for field in FIELDS), "read_at", "location")
INSTANTS = frozenset(field.name for field in FIELDS if isinstance(field, InstantField))


def record(row: tuple[Any, ...], connection: BaseDatabaseWrapper) -> Record:
    """Read a row of `select` or `lock`. Raises `RecordUnreadable`, but not if only the response is unreadable."""
    return record_of(dict(zip(NAMES, row, strict=True)), connection)


def records(rows: Sequence[tuple[Any, ...]], connection: BaseDatabaseWrapper) -> tuple[list[Record], int]:
    """Read the rows of `scan`, and count those that cannot be read."""
    found: list[Record] = []
    for row in rows:
        with suppress(RecordUnreadable):
            found.append(record(row, connection))
    return found, len(rows) - len(found)


def position(row: tuple[Any, ...], connection: BaseDatabaseWrapper) -> tuple[Any, UUID]:
    """Return where the next `scan` begins."""
    values = dict(zip(NAMES, row, strict=True))
    field = IdempotencyRecord._meta.get_field("purge_at")
    return field.get_db_prep_value(instant(values["purge_at"], connection), connection), uuid_of(values["id"])


def record_of(value: Mapping[str, Any], connection: BaseDatabaseWrapper) -> Record:
    """Return a row, given by its column names, as a record; without a response if those columns are not given.

    Raises `RecordUnreadable` for a row of a later version or of other software. If only its response cannot be read,
    the record has none.
    """
    try:
        status = STATUSES[value["status"]]
        outcome = None
        if value.get("response_headers") and (status is Status.COMPLETED or value["response_status"] is not None):
            outcome = outcome_of(value["response_status"], value["response_headers"], value["response_body"])
        record_id, owner, operation = [
            each if isinstance(each, UUID) else UUID(each) for each in (value["id"], value["owner"], value["operation"])
        ]
        times = [value[name] for name in ("lease_until", "created_at", "expires_at", "purge_at", "read_at")]
        completed = [] if value["completed_at"] is None else [value["completed_at"]]
        lease_until, created_at, expires_at, purge_at, read_at, *completed = instants(times + completed, connection)
        return Record(
            id=record_id,
            scope=value["scope"],
            key=value["key"],
            method=value["method"],
            path=value["path"],
            guarantee=GUARANTEES[value["guarantee"]],
            digest=bytes(value["digest"]),
            status=status,
            owner=owner,
            attempt=value["attempt"],
            lease_until=lease_until,
            created_at=created_at,
            completed_at=completed[0] if completed else None,
            expires_at=expires_at,
            purge_at=purge_at,
            read_at=read_at,
            operation=operation,
            secret_id=value["secret_id"],
            request_id=value["request_id"],
            outcome=outcome,
            location=value["location"],
        )
    except (LookupError, TypeError, ValueError) as error:
        raise RecordUnreadable from error


def outcome_of(status: Any, headers: Any, body: Any) -> Outcome | None:
    """Return the response of a row, or `None` if it cannot be read."""
    try:
        read = tuple([(str(name), str(text)) for name, text in json.loads(headers)])
        return Outcome(status=int(status), headers=read, body=MISSING if body is None else bytes(body))
    except (TypeError, ValueError):
        return None


def uuid_of(value: UUID | str) -> UUID:
    """Return an id as the driver has read it."""
    return value if isinstance(value, UUID) else UUID(value)


def instants(values: Iterable[datetime | str], connection: BaseDatabaseWrapper) -> list[datetime]:
    """Return a driver's values of `InstantField`s, or of the database's clock, as aware UTC datetimes."""
    # A naive value is UTC: on PostgreSQL we select no instant in a session's time zone, see Dialect.instant().
    naive = not connection.features.supports_timezones
    read = [datetime.fromisoformat(value) if isinstance(value, str) else value for value in values]  # SQLite's clock
    return [
        value.replace(tzinfo=timezone.utc) if naive or value.tzinfo is None else value.astimezone(timezone.utc)
        for value in read
    ]


def instant(value: datetime | str, connection: BaseDatabaseWrapper) -> datetime:
    """See instants()."""
    return instants([value], connection)[0]
