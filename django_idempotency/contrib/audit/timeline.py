"""The trail, read: what happened to a key in order, and which business ids belong to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from ... import conf
from ..at_rest.sealed import CannotOpen
from .models import AuditEvent, Reference
from .sealing import Personal, open_event, open_reference
from .values import value_hash

#: The newest events of a record that are read, and the records of a reference.
MOST = 500
#: What stands in place of something sealed that no key opens.
SEALED = "#sealed"

#: Event → what it says, and the status of records whose colour it has.
EVENTS: dict[str, tuple[Promise, str]] = {
    "claimed": (_("Claimed: the work runs."), "running"),
    "taken_over": (_("Taken over: an earlier owner did not finish. The work runs again."), "failed"),
    "resumed": (_("Resumed: a durable execution continues."), "running"),
    "replayed": (_("Replayed: the stored response was returned."), "completed"),
    "busy": (_("Refused: a request with this key was running."), "free"),
    "mismatched": (_("Refused: the key was used for another request."), "failed"),
    "unreadable": (_("Refused: the record is damaged."), "abandoned"),
    "suspected": (_("The same was sent with another key."), "failed"),
    "completed": (_("Completed: the response is stored."), "completed"),
    "released": (_("Released: the attempt failed, or its response is not kept. The key is free."), "failed"),
    "suspended": (_("Suspended: the key waits for its durable execution."), "running"),
    "deferred": (_("The store did not respond at the end. It is retried."), "failed"),
    "lost": (_("Lost: the record was not settled by this attempt."), "abandoned"),
    "unavailable": (_("The store did not respond at the beginning."), "abandoned"),
    "released_by_hand": (_("Released by hand."), "failed"),
    "expired_by_hand": (_("Expired by hand."), "expired"),
    "erased_by_hand": (_("Erased by hand."), "expired"),
    "undone_by_hand": (_("Undone by hand."), "expired"),
    "forgotten": (_("Forgotten by the project's code."), "expired"),
    "erased": (_("Erased: what named a person is gone. The key stays used."), "expired"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a timeline."""

    at: datetime
    event: str
    #: 0: this request did not run the work.
    attempt: int
    outcome: str
    request: str
    owner: str
    actor: str
    request_id: str
    reason: str

    @property
    def meaning(self) -> Promise | str:
        return EVENTS[self.event][0] if self.event in EVENTS else self.event

    @property
    def colour(self) -> str:
        """The CSS class of the admin's labels."""
        return EVENTS[self.event][1] if self.event in EVENTS else "free"


@dataclass(frozen=True, slots=True, kw_only=True)
class Referred:
    """A business id, and whose key it belongs to."""

    kind: str
    value: str
    record: UUID
    scope: str
    key: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What is known of a record: its newest events, oldest first, and its references."""

    entries: list[Entry]
    references: list[Referred]
    #: Were there more than `MOST`?
    cut: bool


def timeline_of(record: UUID) -> Timeline:
    """Return what the trail has of a record, which need not exist any more."""
    rows = list(AuditEvent.objects.filter(record=record).order_by("-pk")[: MOST + 1])
    references = Reference.objects.filter(record=record).order_by("pk")[:MOST]
    return Timeline(
        # An event that was kept for its transaction is written with the next one.
        entries=sorted(map(entry_of, rows[:MOST]), key=lambda entry: entry.at),
        references=[referred_of(row) for row in references],
        cut=len(rows) > MOST,
    )


def referring_to(kind: str, value: str) -> list[Referred]:
    """Return the newest references of this kind with this value."""
    found = Reference.objects.filter(value_hash__in=hashes_of(value), kind=kind)
    return [referred_of(row) for row in found.order_by("-pk")[:MOST]]


def hashes_of(value: str) -> list[UUID]:
    """Return the hashes that a value may be stored under: plain, or keyed with a secret of this project."""
    return [value_hash(value), *(value_hash(value, secret) for secret in dict.fromkeys(conf.derive_secrets()))]


def entry_of(row: AuditEvent) -> Entry:
    """Return a row as it is shown. What no key opens is named as such."""
    try:
        personal = open_event(row)
    except CannotOpen:
        personal = Personal(SEALED, SEALED, SEALED)
    return Entry(**_fields(row, "at", "event", "attempt", "outcome", "request", "owner"), **personal._asdict())


def referred_of(row: Reference) -> Referred:
    """See entry_of()."""
    try:
        value = open_reference(row)
    except CannotOpen:
        value = SEALED
    return Referred(**_fields(row, "kind", "record", "scope", "key", "at"), value=value)


def _fields(row: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}
