"""The trail, read: what happened to a key in order, and which business ids belong to it."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...signals import EVENTS
from .models import AuditEvent, Reference
from .sealing import shown
from .values import value_hash

#: The newest events of a record that are read, and the records of a reference.
MOST = 500

#: What is no event of a request → what it says, and the status of records whose colour it has.
BY_HAND: dict[str, tuple[Promise, str]] = {
    "released_by_hand": (_("Released by hand."), "failed"),
    "expired_by_hand": (_("Expired by hand."), "expired"),
    "erased_by_hand": (_("Erased by hand."), "expired"),
    "undone_by_hand": (_("Undone by hand."), "expired"),
    "forgotten": (_("Forgotten by the project's code."), "expired"),
    "erased": (_("Erased: what named a person is gone. The key stays used."), "expired"),
}


def said_of(event: str) -> tuple[Promise | str, str]:
    """Return what an event says, and the CSS class of its label."""
    if event in BY_HAND:
        return BY_HAND[event]
    if event in EVENTS:
        return gettext(EVENTS[event].sentence), EVENTS[event].colour
    return event, "free"


class Timeline(NamedTuple):
    """What is known of a record: its newest events, oldest first, and its references, as `sealing.shown()` shows them."""

    events: list[AuditEvent]
    references: list[Reference]
    #: Were there more than `MOST`?
    cut: bool


def timeline_of(record: UUID) -> Timeline:
    """Return what the trail has of a record, which need not exist any more."""
    rows = list(AuditEvent.objects.filter(record=record).order_by("-pk")[: MOST + 1])
    references = Reference.objects.filter(record=record).order_by("pk")[:MOST]
    # An event that was kept for its transaction is written with the next one.
    events = sorted(map(shown, rows[:MOST]), key=lambda event: event.at)
    return Timeline(events, list(map(shown, references)), cut=len(rows) > MOST)


def referring_to(kind: str, value: str) -> list[Reference]:
    """Return the newest references of this kind with this value."""
    found = Reference.objects.filter(value_hash__in=hashes_of(value), kind=kind)
    return list(map(shown, found.order_by("-pk")[:MOST]))


def hashes_of(value: str) -> list[UUID]:
    """Return the hashes that a value may be stored under: plain, or keyed with a secret of this project."""
    return [value_hash(value), *(value_hash(value, secret) for secret in dict.fromkeys(conf.derive_secrets()))]
