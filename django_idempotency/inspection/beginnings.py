"""Finds a record by the beginning of its id: logs, traces and metrics name it so, as `key_hash`."""

from __future__ import annotations

import re
from uuid import UUID

from django.db import connections
from django.db.models import Q, QuerySet

from ..instrumentation.outcomes import ID_LENGTH
from ..models import IdempotencyRecord

#: The digits of a `key_hash`, or more of the id. Fewer would find others' records.
_BEGINNING = re.compile(rf"[0-9a-f]{{{ID_LENGTH},31}}")


def beginning(text: str) -> str:
    """Return the digits with which an id may begin; "": the text is not the beginning of an id."""
    digits = text.strip().lower().replace("-", "")
    return digits if _BEGINNING.fullmatch(digits) else ""


def begins(digits: str) -> Q:
    """Return what is true of the records whose ids begin so.

    It reads each row that nothing else rules out.
    """
    groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return Q(pk__startswith="-".join(group for group in groups if group))


def by_primary_key(
    rows: QuerySet[IdempotencyRecord], digits: str
) -> QuerySet[IdempotencyRecord] | None:
    """Return the rows whose ids begin so, found in the index of the primary key.

    `None`: MariaDB orders a UUID by its last digits, so its index cannot tell.
    """
    connection = connections[rows.db]
    if connection.vendor == "mysql" and connection.features.has_native_uuid_field:
        return None
    return rows.filter(pk__range=(UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))))
