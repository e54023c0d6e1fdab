"""What may name a person is sealed with ENCRYPTION_KEYS, if there are any: each row for its own place.

Scope and key are as in the record: plain, or hashes with HASH_KEYS.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ... import conf
from ..at_rest.encryption import opened, sealing
from ..at_rest.sealed import CannotOpen
from .models import AuditEvent, Reference
from .values import value_hash


class Personal(NamedTuple):
    """What an event knows about people."""

    actor: str = ""
    request_id: str = ""
    reason: str = ""


def seal_event(event: AuditEvent) -> None:
    """Seal an event before it is written, if a key seals."""
    ring, facts = sealing(), Personal(event.actor, event.request_id, event.reason)
    if ring is not None and any(facts):
        event.sealed = ring.seal(json.dumps(facts).encode(), *_place_of_event(event))
        event.actor = event.request_id = event.reason = ""


def open_event(event: AuditEvent) -> Personal:
    """Return what an event knows about people. Raises `CannotOpen`."""
    if event.sealed is None:
        return Personal(event.actor, event.request_id, event.reason)
    try:
        return Personal(*json.loads(opened(bytes(event.sealed), *_place_of_event(event))))
    except (ValueError, TypeError) as error:
        raise CannotOpen("it was sealed by a later version") from error


def seal_reference(reference: Reference) -> None:
    """Seal a reference before it is written, if a key seals. It is found by a keyed hash then."""
    if (ring := sealing()) is not None:
        reference.value_hash = value_hash(reference.value, conf.derive_secret())
        reference.sealed = ring.seal(reference.value.encode(), *_place_of_reference(reference))
        reference.value = ""


def open_reference(reference: Reference) -> str:
    """Return the value of a reference. Raises `CannotOpen`."""
    if reference.sealed is None:
        return str(reference.value)
    return opened(bytes(reference.sealed), *_place_of_reference(reference)).decode()


def _place_of_event(event: AuditEvent) -> tuple[bytes, ...]:
    return b"audit event", event.record.bytes, event.event.encode(), b"%d" % round(event.at.timestamp() * 1e6)


def _place_of_reference(reference: Reference) -> tuple[bytes, ...]:
    return b"audit reference", reference.record.bytes, reference.operation.bytes, reference.kind.encode()
