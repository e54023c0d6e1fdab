"""What an event of the engine is as a row: never a body or a response, and no owner token in clear."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.functional import SimpleLazyObject

from ... import conf
from ...core import rules
from ...core.at_rest import ERASED, hashed_key, hashed_scope
from ...core.failures import failure_in
from ...core.records import CALL_METHOD, Outcome, Record, kind_of
from ...core.scope_names import user_of
from ...engine.operation import Operation
from ...instrumentation.observer import route_of
from ...stores.base import utcnow
from .models import AuditEvent, Reference
from .sealing import seal
from .values import named

#: Characters of a hash of the owner token.
_OWNER = 12
#: Events that say how the operation's own work has ended.
_ENDINGS = frozenset({"completed", "released", "deferred", "lost"})


def event_of(event: str, operation: Operation, request: Any, *, at: datetime | None = None) -> AuditEvent:
    """Return the row of an event of an operation, sealed if that is asked for."""
    ticket = operation.ticket
    where = route_of(request)
    scope, key = at_rest(ticket.scope, ticket.key)
    row = AuditEvent(
        record=ticket.id,
        scope=scope,
        key=key,
        at=at or utcnow(),
        event=event,
        attempt=operation.attempt,
        outcome=_outcome(event, operation),
        request=f"{ticket.method} {ticket.path if where is None else where}"[:255],
        owner=_hash_of(ticket.owner),
        actor=_actor(operation, request)[:255],
        request_id=ticket.request_id,
    )
    seal(row)
    return row


def intervention_of(event: str, record: Record, *, actor: str, reason: str) -> AuditEvent:
    """Return the row of an operator's change of a record, as it was before. An erased record is not named any more."""
    scope, key = (ERASED, ERASED) if event == "erased" else at_rest(record.scope, record.key)
    row = AuditEvent(
        record=record.id,
        scope=scope,
        key=key,
        at=utcnow(),
        event=event,
        attempt=record.attempt,
        outcome=_name_of(record.outcome),
        owner=_hash_of(record.owner),
        actor=actor[:255],
        reason=reason[:500],
    )
    seal(row)
    return row


def reference_of(operation: Operation, kind: str, value: Any) -> Reference:
    """Return the row of a reference. Raises `ValueError` for one that cannot be kept."""
    kind, text = named(kind, value)
    ticket, record, run = operation.ticket, operation.record, operation.run
    scope, key = at_rest(ticket.scope, ticket.key)
    row = Reference(
        record=ticket.id,
        scope=scope,
        key=key,
        # Without a store (`on_store_failure="open"`) nothing is known of earlier attempts.
        operation=rules.operation_begun_by(ticket)
        if record is None or run is None
        else rules.operation_of(record, run),
        kind=kind,
        value=text,
        at=utcnow(),
    )
    seal(row)
    return row


def at_rest(scope: str, key: str) -> tuple[str, str]:
    """Return a scope and a key as the store writes them."""
    if not conf.get("HASH_KEYS"):
        return scope, key
    secret = conf.derive_secret()
    return hashed_scope(secret, scope), hashed_key(secret, scope, key)


def _actor(operation: Operation, request: Any) -> str:
    """Name the user that the scope names, or whom authentication has set; for a function's call, the function.

    A lazy user is not asked for: that would query the database, and let the response vary by cookie.
    """
    ticket = operation.ticket
    if (user := user_of(ticket.scope)) is not None:
        return ":".join(user)
    if ticket.method == CALL_METHOD:
        return ticket.path
    found = getattr(request, "user", None)
    if found is None or isinstance(found, SimpleLazyObject) or getattr(found, "pk", None) is None:
        return ""
    meta = getattr(found, "_meta", None)
    return f"{type(found).__name__ if meta is None else meta.label_lower}:{found.pk}"


def _outcome(event: str, operation: Operation) -> str:
    if event in _ENDINGS:
        return _name_of(operation.outcome)
    if event == "replayed" and operation.record is not None:
        return _name_of(operation.record.outcome)
    return ""


def _name_of(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    if (failure := failure_in(outcome)) is not None:
        return failure.name[:64]
    kind = kind_of(outcome)
    return str(outcome.status) if kind is None else kind.name.lower()


def _hash_of(owner: UUID) -> str:
    return hashlib.sha256(owner.bytes).hexdigest()[:_OWNER]
