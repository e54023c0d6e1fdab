"""What a client may do about its own operation when it knows only the key: ask about it, or cancel it before it begins.

A cancellation is a record like any other, completed before the request arrives: that one, even if it is the first with
its key, is refused with `OperationCancelled`.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from typing import Any

from django.http import HttpRequest
from django.utils.encoding import escape_uri_path

from .. import conf
from ..core import rules
from ..core.hashing import record_id
from ..core.key_formats import kept_for
from ..core.policy import OBSERVE, Policy, Resolved
from ..core.records import MISSING, Guarantee, Outcome, Record, Status, shortened
from ..core.rules import Busy, Execute, Replay, WorkResult
from ..engine.lease import LeaseOperation
from ..errors import ConfigurationError, InProgress, KeyUnknown, OperationFinished, RecordUnreadable, ScopeRequired
from ..runtime.registry import store_of
from ..runtime.tickets import issue
from .keys import formatted, named_key, request_id_of, scope_of
from .responses import CANCELLATION, is_cancellation

logger = logging.getLogger("django_idempotency")


def look_up(request: HttpRequest, user: Any, policy: Policy, sent: str) -> dict[str, Any]:
    """Return what is known of the caller's own operation under a key, as JSON can express it.

    `state` is "running", "lapsed" (its owner has not been heard of), "completed", "cancelled" or "free" (it failed or was
    refused). Of a response there is its status; headers and body only where the policy's `authorize_replay` allows them,
    since no check that stands before the view is repeated here.

    Raises `KeyUnknown`, `ScopeRequired`, `StoreUnavailable`, or what `formatted()` raises.
    """
    terms = conf.resolve(policy)
    key, scope = _key_and_scope(request, user, terms, sent)
    record = store_of(terms).get(record_id(scope, key))
    if record is None or rules.expired(record):
        raise KeyUnknown
    found: dict[str, Any] = {"key": key, "state": _state(record), "attempt": record.attempt}
    if record.outcome is not None and not is_cancellation(record.outcome):
        found["response"] = _shown(record.outcome, whole=_may_see(request, terms, record.outcome))
    return found


def cancel(request: HttpRequest, user: Any, policy: Policy, sent: str) -> None:
    """Keep the caller's own operation under a key from being carried out, now and later. Nothing if it was cancelled.

    Raises `OperationFinished`, `InProgress`, `RecordUnreadable`, `ScopeRequired`, `StoreUnavailable`, or what
    `formatted()` raises; and `ConfigurationError` if the policy only observes: nothing would keep the operation.
    """
    terms = conf.resolve(policy)
    if terms.mode == OBSERVE:
        raise ConfigurationError('No operation can be cancelled under mode="observe", since nothing is guarded.')
    key, scope = _key_and_scope(request, user, terms, sent)
    store = store_of(terms)
    known = store.get(record_id(scope, key))
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
            logger.info("Cancelled: the operation under %s will not be carried out.", shortened(key))
        case Replay(outcome=outcome) if is_cancellation(outcome):
            pass
        case Replay():
            raise OperationFinished
        case Busy(retry_after=seconds):
            raise InProgress(headers={"Retry-After": str(seconds)})
        case rules.Mismatch():  # since we looked, another request has begun
            raise InProgress
        case _:
            raise RecordUnreadable


def _key_and_scope(request: HttpRequest, user: Any, terms: Resolved, sent: str) -> tuple[str, str]:
    named = named_key(sent, terms.profile)
    client, space, key = named.rpartition(" ") if terms.profile.client_field is not None else ("", "", named)
    key = f"{client}{space}{formatted(key, terms)}"
    scope = scope_of(request, user, terms, key)
    if scope is None:
        raise ScopeRequired
    return key, scope


def _state(record: Record) -> str:
    if is_cancellation(record.outcome):
        return "cancelled"
    if record.status is not Status.RUNNING:
        return "completed" if record.status is Status.COMPLETED else "free"
    return "running" if rules.leased(record) else "lapsed"


def _may_see(request: HttpRequest, terms: Resolved, outcome: Outcome) -> bool:
    return terms.authorize_replay is not None and terms.authorize_replay(request, outcome) is True


def _shown(outcome: Outcome, *, whole: bool) -> dict[str, Any]:
    if not whole:
        return {"status": outcome.status}
    shown: dict[str, Any] = {"status": outcome.status, "headers": dict(outcome.headers)}
    if outcome.body is not MISSING:
        try:
            shown["body"] = outcome.body.decode()
        except UnicodeDecodeError:
            shown["body_base64"] = b64encode(outcome.body).decode()
    return shown


def _unreported(event: str, operation: object, error: BaseException | None = None) -> None:
    """Take an event of the engine. No work runs, so none is reported."""
