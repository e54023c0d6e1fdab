"""A record that somebody changes by hand: what the terminal, the log and the audit trail say of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from ..core import rules
from ..core.interventions import Intervention
from ..core.records import Record, shortened
from ..errors import IdempotencyError, OutcomeUnknown, StoreUnavailable
from ..inspection import redaction
from ..inspection.failures import reason
from ..inspection.interventions import Verb
from ..inspection.status import display_status, next_answer
from ..inspection.terminal import plain, span
from ..instrumentation.trail import trail
from ..stores.base import Audit
from .operators import operator
from .sought import Sought

logger = logging.getLogger("django_idempotency")

#: What knows durable executions, by name: only `--execution` needs it.
EXECUTION = "django_idempotency.contrib.durable.suspending.Execution"


def intervene(sought: Sought, verb: Verb, *, why: str, execution: str | None) -> Iterator[str]:
    """Act through all layers of the store, so that no copy is left in a front. Yield what has happened.

    `execution` names a durable execution that has suspended the record. Raises `CommandError`, and what a store raises.
    """
    before: list[Record] = []
    try:
        ended = _act(sought, verb, execution, before.append)
    except (StoreUnavailable, OutcomeUnknown) as error:
        if not before:
            raise
        _note(sought, verb, before[-1], why=why, sure=False)
        raise CommandError(
            f"It is unknown whether it was {verb.done.lower()}: the store {sought.alias!r} did not respond. "
            f"{reason(error)}\nType the command again; it reports if there is nothing left to do."
        ) from error
    match ended:
        case Intervention.DONE:
            record = before[0]
            _note(sought, verb, record, why=why)
            path = plain(redaction.text(record.path))
            was = f"It was {display_status(record).label}, attempt {record.attempt}, {record.method} {path}"
            yield f"{verb.done}. {was}."
            yield from _next(sought)
        case Intervention.ALREADY:
            yield f"{verb.already}. Nothing was changed."
            yield from _next(sought)
        case Intervention.BUSY:
            raise CommandError(
                "Refused: a request with its key is running, and holds the record. Nothing was changed. "
                f"{_lease(sought)}Try again later."
            )
        case Intervention.GONE:
            raise sought.unknown()


def _act(sought: Sought, verb: Verb, execution: str | None, audit: Audit) -> Intervention:
    """Free what an execution has suspended; or let the store act, as it must after that, to erase."""
    if execution:
        forgetting = verb.name != "release"
        done = named(execution).release(sought.store, sought.id, audit=audit, forgetting=forgetting)
        if done and verb.name != "erase":
            return Intervention.DONE
    return verb.act(sought.store, sought.id, audit=audit)


def named(execution: str) -> Any:
    """Return the durable execution of this name."""
    return import_string(EXECUTION)(execution)


def _next(sought: Sought) -> Iterator[str]:
    """Yield what the next request gets; nothing if the store no longer responds."""
    try:
        record = sought.store.get(sought.id)
    except IdempotencyError:
        return
    purged = not sought.store.expires_natively
    gets = "runs the work as the first one." if record is None else next_answer(record, purged=purged)
    yield f"A request with this key now {gets}"


def _lease(sought: Sought) -> str:
    """Return a sentence about when the lease ends; "" if there is none."""
    record = sought.store.get(sought.id)
    if record is None or not rules.leased(record):
        return ""
    return f"Its lease ends in {span(record.lease_until - record.read_at)}, unless its owner is still alive and renews it. "


def _note(sought: Sought, verb: Verb, record: Record, *, why: str, sure: bool = True) -> None:
    """Log who changed the record, and its state before. Not `sure`: the outcome of the change is unknown."""
    facts: dict[str, Any] = {
        "event": f"{verb.done.lower()}_by_hand",
        "sure": sure,
        "user": operator(),
        "store": sought.alias,
        "id": str(record.id),
        "key": shortened(record.key),
        "scope": record.scope,
        "method": record.method,
        "path": record.path,
        "status": record.status.name.lower(),
        "attempt": record.attempt,
    }
    if sure:
        trail.intervened(facts["event"], record, actor=operator(), reason=why)
    logger.warning(
        "%s by hand%s, by %s: record %s of %s in the store %s. It was %s, attempt %d.",
        verb.done,
        "" if sure else ", perhaps: the store did not respond",
        *(facts[fact] for fact in ("user", "id", "scope", "store", "status", "attempt")),
        extra={"idempotency": facts},
    )
