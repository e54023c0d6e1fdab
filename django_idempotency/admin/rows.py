"""A row of the table as a record of the core, for display in the admin and in a terminal."""

from __future__ import annotations

import json

from django.db import DEFAULT_DB_ALIAS, connections

from ..core.records import MISSING, Outcome, Record
from ..models import IdempotencyRecord
from ..stores.orm.statements import record_of


def record_of_row(row: IdempotencyRecord) -> Record:
    """Return a row as the record that the store would read at the database's time; without a deferred response.

    `row` comes from the page's queryset, which annotates `read_at`. Raises `RecordUnreadable` for a row of a later version
    or of other software.
    """
    deferred = row.get_deferred_fields()
    names = [field.attname for field in row._meta.concrete_fields if field.attname not in deferred]
    values = {name: getattr(row, name) for name in (*names, "read_at")}
    return record_of({**values, "location": None}, connections[row._state.db or DEFAULT_DB_ALIAS])  # noqa: SLF001 - documented, and the only name it has


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
