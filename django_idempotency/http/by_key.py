"""What a client may do about its own operation when it knows only the key: ask about it, or cancel it before it begins.

A cancellation is a record like any other, completed before the request arrives: that one, even if it is the first with
its key, is refused with `OperationCancelled`.
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

from django.http import HttpRequest
from django.utils.encoding import escape_uri_path

from .. import conf
from ..core import rules
from ..core.conclusions import WorkResult
from ..core.failures import response_of
from ..core.hashing import record_id
from ..core.key_formats import kept_for
from ..core.policy import OBSERVE, Policy, Resolved
from ..core.records import CANCELLATION, Guarantee, Record, Status, shortened
from ..core.rules import Busy, Execute, Replay
from ..engine.lease import LeaseOperation
from ..errors import (
    InProgress,
    KeyUnknown,
    LostRace,
    NothingGuarded,
    OperationFinished,
    OperationHeld,
    RecordUnreadable,
    ScopeRequired,
)
from ..instrumentation.trail import trail
from ..runtime import switch
from ..runtime.registry import store_of
from ..runtime.tickets import issue
from ..stores.base import BaseStore
from .keys import formatted, named_key, of_client, request_id_of, scope_of
from .references import note_operation
from .responses import is_cancellation, is_held
from .spoken import speak

logger = logging.getLogger("django_idempotency")


def look_up(request: HttpRequest, user: Any, policy: Policy, sent: str) -> dict[str, Any]:
    """Return what is known of the caller's own operation under a key, as JSON can express it.

    `state` is "running", "lapsed" (its owner has not been heard of), "completed", "held" (a person finds out how far it came),
    "cancelled" or "free" (it failed or was refused). Of a response there is its status only: no check that stands before its view is repeated here.

    Raises `KeyUnknown`, `ScopeRequired`, `StoreUnavailable`, or what `formatted()` raises.
    """
    terms = _terms(request, policy)
    key, scope = _key_and_scope(request, user, terms, sent)
    note_operation(request, record_id(scope, key))
    store = store_of(terms)
    record = store.get(record_id(scope, key))
    if record is None or rules.expired(record):
        raise KeyUnknown
    found: dict[str, Any] = {"key": key, "state": _state(store, record), "attempt": record.attempt}
    response = response_of(record)
    if response is not None and not (is_cancellation(response) or is_held(response)):
        found["response"] = {"status": response.status}
    return found


def cancel(request: HttpRequest, user: Any, policy: Policy, sent: str) -> None:
    """Keep the caller's own operation under a key from being carried out, now and later. Nothing if it was cancelled.

    Raises `OperationFinished`, `OperationHeld`, `InProgress`, `NothingGuarded`, `RecordUnreadable`, `ScopeRequired`, `StoreUnavailable`, or
    what `formatted()` raises.
    """
    terms = _terms(request, policy)
    if terms.mode == OBSERVE or not switch.enabled():
        raise NothingGuarded
    key, scope = _key_and_scope(request, user, terms, sent)
    note_operation(request, record_id(scope, key))
    store = store_of(terms)
    known = store.get(record_id(scope, key))
    if known is not None and not rules.expired(known) and _state(store, known) == "running":
        raise InProgress(headers={"Retry-After": str(rules.busy(known).retry_after)})
    ticket = issue(
        terms,
        scope=scope,
        key=key,
        digest=b"" if known is None else known.digest,  # a failed request holds its key for the same body
        method=request.method or "",
        path=escape_uri_path(request.path),
        request_id=request_id_of(request),
        ttl=kept_for(terms.key_format, terms.ttl),
    )._replace(guarantee=Guarantee.LEASE)
    operation = LeaseOperation(store, ticket, _unreported)
    match operation.open():
        case Execute():
            operation.settle(WorkResult.KEPT, CANCELLATION)
            if operation.left_as is None:
                raise InProgress
            _report(operation, request)
        case Replay(outcome=outcome) if is_cancellation(outcome):
            pass
        case Replay(outcome=outcome) if is_held(outcome):
            raise OperationHeld
        case Replay():
            raise OperationFinished
        case Busy(retry_after=seconds):
            raise InProgress(headers={"Retry-After": str(seconds)})
        case rules.Mismatch():  # since we looked, another request has begun
            raise InProgress
        case _:
            raise RecordUnreadable


def _report(operation: LeaseOperation, request: HttpRequest) -> None:
    logger.info("Cancelled: the operation under %s will not be carried out.", shortened(operation.ticket.key))
    if trail.active is not None:
        trail.active.event("cancelled", operation, request)


def _terms(request: HttpRequest, policy: Policy) -> Resolved:
    terms = conf.resolve(policy)
    speak(request, terms.profile)
    return terms


def _key_and_scope(request: HttpRequest, user: Any, terms: Resolved, sent: str) -> tuple[str, str]:
    profile = terms.profile
    client, _, named = sent.rpartition(" ") if profile.client_field is not None else ("", "", sent)
    key = formatted(named_key(named, profile), terms)
    if profile.client_field is not None:
        key = of_client(key, client or None, profile)
    scope = scope_of(request, user, terms, key)
    if scope is None:
        raise ScopeRequired
    return key, scope


def _state(store: BaseStore, record: Record) -> str:
    if is_cancellation(record.outcome):
        return "cancelled"
    if is_held(record.outcome):
        return "held"
    if record.status is Status.COMPLETED:
        return "completed"
    if rules.leased(record) or (record.guarantee is Guarantee.ATOMIC and _is_locked(store, record)):
        return "running"
    return "lapsed" if record.status is Status.RUNNING else "free"


def _is_locked(store: BaseStore, record: Record) -> bool:
    """Does an owner hold the row of an `atomic` record? Its lease only covers the way to that lock."""
    ticket = record.ticket(owner=uuid4())._replace(guarantee=Guarantee.ATOMIC)
    try:
        with store.guard(ticket, takeover=True) as guard:
            guard.set_rollback()
            return guard.record is None
    except LostRace:  # on SQLite the lock is not given
        return True


def _unreported(event: str, operation: object, error: BaseException | None = None) -> None:
    """Take an event of the engine. No work runs, so none is reported."""
