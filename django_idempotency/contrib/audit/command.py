"""Show the audit trail of a key, also after its record was deleted; or the keys that refer to
something.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from ...inspection import redaction
from ...inspection.terminal import plain
from ...management.arguments import sought
from ...management.base import StoreCommand
from .models import AuditEvent, Reference
from .rows import Timeline, parsed, referring_to, timeline_of

#: What JSON has of an event, and of a reference.
EVENT = ("at", "event", "attempt", "outcome", "request", "owner", *AuditEvent.personal)
REFERENCE = ("kind", "value", "record", "scope", "key", "at")


class History(StoreCommand):
    """`idempotency_record --history`."""

    def add_arguments(self, parser: CommandParser) -> None:
        trail = parser.add_argument_group("the audit trail")
        trail.add_argument(
            "--history",
            action="store_true",
            help="Show what happened to the key, oldest first, also after its record was deleted.",
        )
        trail.add_argument(
            "--reference",
            metavar="KIND:VALUE",
            help='List the keys that refer to something, such as "payment:17".',
        )

    def look(self, **options: Any) -> None:
        in_json: bool = options["format"] == "json"
        with self.table_explained("The audit trail cannot be read:"):
            if options["reference"] is not None:
                found = self.referring(options["reference"], in_json=in_json)
            else:
                found = self.history(options, in_json=in_json)
            for line in found:
                self.stdout.write(line)

    def history(self, options: dict[str, Any], *, in_json: bool) -> Iterator[str]:
        if options["scope"] is None:
            raise CommandError(
                "Type a scope and a key, the operation_ref of a problem document, or --reference."
            )
        known = timeline_of(
            sought(self.alias, options["scope"], options["key"], realm=options["realm"]).id
        )
        if not (known.events or known.references):
            raise CommandError("The audit trail has nothing of this key.")
        return map(as_json, [*known.events, *known.references]) if in_json else lines(known)

    def referring(self, typed: str, *, in_json: bool) -> Iterator[str]:
        named = parsed(typed)
        if named is None:
            raise CommandError(
                f"{typed!r} is no reference. Type its kind, a colon and its value, such as "
                "payment:17."
            )
        found = referring_to(*named)
        if not found:
            raise CommandError(f"No key refers to {plain(typed)}.")
        return map(as_json if in_json else reference_line, found)


def lines(known: Timeline) -> Iterator[str]:
    """Yield the events of a record, oldest first, and its references."""
    if known.cut:
        yield f"Only the newest {len(known.events)} events:"
    for event in known.events:
        attempt = f"attempt {event.attempt}" if event.attempt else ""
        facts = (
            event.outcome,
            attempt,
            event.actor,
            redaction.text(event.request),
            event.request_id,
        )
        reason = f" ({plain(event.reason)})" if event.reason else ""
        said = ", ".join(plain(str(fact)) for fact in facts if fact)
        yield (
            f"{timezone.localtime(event.at):%Y-%m-%d %H:%M:%S.%f %Z}  {event.event:<16}  "
            f"{said}{reason}"
        )
    for reference in known.references:
        yield f"refers to {plain(reference.kind)}:{plain(reference.value)}"


def reference_line(found: Reference) -> str:
    return (
        f"{plain(found.scope)}  {plain(found.key)}  "
        f"{timezone.localtime(found.at):%Y-%m-%d %H:%M:%S %Z}"
    )


def as_json(found: Any) -> str:
    """Return an event or a reference on one line."""
    names = EVENT if isinstance(found, AuditEvent) else REFERENCE
    facts = {name: getattr(found, name) for name in names}
    return json.dumps({**facts, "at": found.at.isoformat()}, default=str)
