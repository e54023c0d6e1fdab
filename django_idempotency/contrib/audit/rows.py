"""The rows of the trail: what an event of the engine is as a row, how it is sealed and found, and
how it is read.

There is never a body or a response in one, and no owner token in clear. What may name a person is
sealed with ENCRYPTION_KEYS, if there are any: each row for its own place. Scope and key are as in
the record: plain, or hashes with HASH_KEYS.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.utils.functional import Promise, SimpleLazyObject
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...api import Outcome, Record, Ticket
from ...core import rules
from ...core.at_rest import ERASED, hashed_key, hashed_scope
from ...core.failures import failure_in
from ...core.hashing import first_operation, framed, octets
from ...core.records import CALL_METHOD, kind_of
from ...engine.operation import Operation
from ...instrumentation.observer import route_of
from ...scopes import user_of
from ...signals import EVENTS
from ...stores.base import utcnow
from ..at_rest.encryption import opened, sealing
from ..at_rest.sealed import CannotOpen
from .models import AppendOnlyModel, AuditEvent, Reference

R = TypeVar("R", bound=AppendOnlyModel)
#: Characters of a hash of the owner token.
_OWNER = 12
#: Events that say how the operation's own work has ended.
_ENDINGS = frozenset({"completed", "released", "deferred", "lost"})


def event_of(event: str, operation: Operation, request: Any) -> AuditEvent:
    """Return the row of an event of an operation."""
    ticket = operation.ticket
    where = route_of(request)
    return _sealed(
        AuditEvent,
        ticket,
        event=event,
        attempt=operation.attempt,
        outcome=_outcome(event, operation),
        request=f"{ticket.method} {ticket.path if where is None else where}"[:255],
        owner=_hash_of(ticket.owner),
        actor=_actor(operation, request)[:255],
        request_id="" if ticket.method == CALL_METHOD else ticket.request_id,
    )


def intervention_of(event: str, record: Record, *, actor: str, reason: str) -> AuditEvent:
    """Return the row of an operator's change of a record, as it was before.

    An erased record is not named any more.
    """
    facts = {"event": event, "attempt": record.attempt, "outcome": _name_of(record.outcome)}
    nobody = {"scope": ERASED, "key": ERASED} if event == "erased" else {}
    said = {"owner": _hash_of(record.owner), "actor": actor[:255], "reason": reason[:500]}
    return _sealed(AuditEvent, record, **facts, **nobody, **said)


def reference_of(operation: Operation, kind: str, value: Any) -> Reference:
    """Return the row of a reference. Raises `ValueError` for one that cannot be kept."""
    kind, text = named(kind, value)
    ticket = operation.ticket
    record = operation.record
    run = operation.run
    # Without a store (`on_store_failure="open"`) nothing is known of earlier attempts.
    life = (
        first_operation(ticket)
        if record is None or run is None
        else rules.operation_of(record, run)
    )
    return _sealed(Reference, ticket, operation=life, kind=kind, value=text)


def _sealed(model: type[R], of: Ticket | Record, **facts: Any) -> R:
    """Make a row about a record, sealed if that is asked for."""
    scope, key = at_rest(of.scope, of.key)
    row = model(**{"record": of.id, "scope": scope, "key": key, "at": utcnow(), **facts})
    seal(row)
    return row


def at_rest(scope: str, key: str) -> tuple[str, str]:
    """Return a scope and a key as the store writes them."""
    if not conf.get("HASH_KEYS"):
        return scope, key
    secret = conf.derive_secret()
    return hashed_scope(secret, scope), hashed_key(secret, scope, key)


def _actor(operation: Operation, request: Any) -> str:
    """Name the user that the scope names, or whom authentication has set; for a function's call,
    the function.

    A lazy user is not asked for: that would query the database, and let the response vary by
    cookie.
    """
    ticket = operation.ticket
    user = user_of(ticket.scope)
    if user is not None:
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
    failure = failure_in(outcome)
    if failure is not None:
        return failure.name[:64]
    kind = kind_of(outcome)
    return str(outcome.status) if kind is None else kind.name.lower()


def _hash_of(owner: UUID) -> str:
    return hashlib.sha256(owner.bytes).hexdigest()[:_OWNER]


# ------------------------------------------------------------------------------------- business ids

#: The longest value (characters).
LONGEST = 255
_KIND = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


def named(kind: Any, value: Any) -> tuple[str, str]:
    """Return the kind in lower case and the value as text.

    Raises `ValueError` for what cannot be kept.
    """
    if not isinstance(kind, str) or _KIND.fullmatch(kind.lower()) is None:
        raise ValueError(
            'A kind is a letter and up to 63 more letters, digits, "_", "." and "-", such '
            f'as "payment": not {kind!r}.'
        )
    text = "" if value is None else str(value)
    if not 1 <= len(text) <= LONGEST or not text.isprintable():
        raise ValueError(
            f"The value of a reference has 1 to {LONGEST} printable characters: {text[:LONGEST]!r}."
        )
    return kind.lower(), text


def parsed(term: str) -> tuple[str, str] | None:
    """Return the kind and the value of what a person types, such as `payment:17`; `None`: it is not
    a reference.
    """
    kind, colon, value = term.strip().partition(":")
    try:
        return named(kind, value) if colon else None
    except ValueError:
        return None


def value_hash(value: str, secret: str | bytes | None = None) -> UUID:
    """Return the hash that a value is found by; with a `secret` one that cannot be compared with a
    guess.
    """
    message = framed((b"reference", value.encode("utf-8", "surrogatepass")))
    digest = (
        hashlib.sha256(message)
        if secret is None
        else hmac.new(octets(secret), message, hashlib.sha256)
    )
    return UUID(bytes=digest.digest()[:16], version=5)


# ------------------------------------------------------------------------------------------ sealing

#: What stands in place of something sealed that no key opens.
SEALED = "#sealed"


def seal(row: AppendOnlyModel) -> None:
    """Seal a row before it is written, if a key seals.

    A reference is found by a keyed hash then.
    """
    ring = sealing()
    facts = [getattr(row, name) for name in row.personal]
    if isinstance(row, Reference):
        row.value_hash = value_hash(row.value, None if ring is None else conf.derive_secret())
    if ring is not None and any(facts):
        _put(row, [""] * len(facts), ring.seal(json.dumps(facts).encode(), *row.place()))


def unseal(row: AppendOnlyModel) -> None:
    """Put back what is sealed. Raises `CannotOpen`."""
    stored: bytes | None = getattr(row, "sealed")  # noqa: B009 - each of the models has it
    if stored is None:
        return
    try:
        facts = json.loads(opened(bytes(stored), *row.place()))
        _put(row, list(map(str, facts)), None)
    except (ValueError, TypeError) as error:
        raise CannotOpen("it was sealed by a later version") from error


def shown(row: R) -> R:
    """Return a row that was read as a person sees it. What no key opens is named as such."""
    try:
        unseal(row)
    except CannotOpen:
        _put(row, [SEALED] * len(row.personal), None)
    return row


def _put(row: AppendOnlyModel, facts: list[str], sealed: bytes | None) -> None:
    for name, value in zip((*row.personal, "sealed"), (*facts, sealed), strict=True):
        setattr(row, name, value)


# ------------------------------------------------------------------------------------------ reading

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
    """What is known of a record: its newest events, oldest first, and its references, as
    `sealing.shown()` shows them.
    """

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
    """Return the hashes that a value may be stored under: plain, or keyed with a secret of this
    project.
    """
    return [
        value_hash(value),
        *(value_hash(value, secret) for secret in dict.fromkeys(conf.derive_secrets())),
    ]
