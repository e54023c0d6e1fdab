"""The audit trail in a terminal: the timeline of a key, and the keys of a reference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.apps import apps
from django.core.management.base import CommandError
from django.db import DatabaseError
from django.utils import timezone

from ..inspection import redaction
from ..inspection.terminal import plain

if TYPE_CHECKING:
    from ..contrib.audit.timeline import Referred, Timeline

APP = "django_idempotency.contrib.audit"


def require_trail() -> None:
    """Raise `CommandError` without the app."""
    if not apps.is_installed(APP):
        raise CommandError(
            f'There is no audit trail. Add "{APP}" to INSTALLED_APPS and "AUDIT": True to settings.IDEMPOTENCY, and type: '
            "manage.py migrate."
        )


def timeline(record: UUID) -> Timeline:
    """Return the timeline of a record. Raises `CommandError`."""
    require_trail()
    from ..contrib.audit.timeline import timeline_of  # not above: loads its models

    try:
        return timeline_of(record)
    except DatabaseError as error:
        raise CommandError(f"The audit trail cannot be read: {error}") from error


def referring(typed: str) -> list[Referred]:
    """Return what a reference such as `payment:17` was found with. Raises `CommandError`."""
    require_trail()
    from ..contrib.audit.timeline import referring_to  # not above: loads its models
    from ..contrib.audit.values import parsed

    named = parsed(typed)
    if named is None:
        raise CommandError(f"{typed!r} is no reference. Type its kind, a colon and its value, such as payment:17.")
    try:
        return referring_to(*named)
    except DatabaseError as error:
        raise CommandError(f"The audit trail cannot be read: {error}") from error


def lines(known: Timeline) -> Iterator[str]:
    """Yield the events of a record, oldest first, and its references."""
    if known.cut:
        yield f"Only the newest {len(known.entries)} events:"
    for entry in known.entries:
        attempt = f"attempt {entry.attempt}" if entry.attempt else ""
        facts = (entry.outcome, attempt, entry.actor, redaction.text(entry.request), entry.request_id)
        reason = f" ({plain(entry.reason)})" if entry.reason else ""
        said = ", ".join(plain(str(fact)) for fact in facts if fact)
        yield f"{timezone.localtime(entry.at):%Y-%m-%d %H:%M:%S.%f %Z}  {entry.event:<16}  {said}{reason}"
    for reference in known.references:
        yield f"refers to {plain(reference.kind)}:{plain(reference.value)}"


def reference_line(found: Referred) -> str:
    return f"{plain(found.scope)}  {plain(found.key)}  {timezone.localtime(found.at):%Y-%m-%d %H:%M:%S %Z}"


def as_json(found: Any) -> str:
    """Return an entry or a reference on one line."""
    facts = {name: value if isinstance(value, int) else str(value) for name, value in asdict(found).items()}
    return json.dumps({**facts, "at": found.at.isoformat()})
