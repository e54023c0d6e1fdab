"""A row of the admin's list as a record of the core."""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import Case, F, TextField, Value, When

from ..core.records import Record, Status
from ..models import IdempotencyRecord
from ..stores.orm.rows import record_of


def record_of_row(row: IdempotencyRecord) -> Record:
    """Return a row as the record that the store would read at the database's time; without a deferred response.

    `row` comes from the page's queryset, which annotates `read_at`. Raises `RecordUnreadable` for a row of a later
    version or of other software.
    """
    deferred = row.get_deferred_fields()
    names = [field.attname for field in row._meta.concrete_fields if field.attname not in deferred]
    values = {name: getattr(row, name) for name in (*names, "read_at")}
    return record_of({**values, "location": None}, connections[row._state.db or DEFAULT_DB_ALIAS])  # noqa: SLF001 - documented, and the only name it has


def noting() -> Case:
    """Return what a released row notes of its failed attempt; "" for any other, whose headers may be long."""
    return Case(When(status=Status.FREE.value, then=F("response_headers")), default=Value(""), output_field=TextField())
