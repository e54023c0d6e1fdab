"""An operator changes a record by hand: one table of what there is, for the admin and the command,
and one way to do it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.db import DatabaseError
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from .. import conf
from ..core.failures import failure_of, response_of
from ..core.interventions import CHANGES, Intervention
from ..core.records import MISSING, Record, shortened
from ..errors import IdempotencyError, LostRace, OutcomeUnknown, OwnershipLost, StoreUnavailable
from ..instrumentation.trail import trail
from ..runtime.app_extensions import app_extensions
from ..stores.base import Audit, BaseStore
from . import redaction
from .failures import described

logger = logging.getLogger("django_idempotency")

_ALREADY = ngettext_lazy(
    "%d record was already free, expired or erased.",
    "%d records were already free, expired or erased.",
)


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One change by hand. What the admin shows is translated; what the command prints is not.

    `name` is that of the store's method, of the admin's permission and of the command's option. An
    app that adds a verb to the admin overrides `act()` and `permission`, and one that does a verb
    otherwise `act()`.
    """

    name: str
    # In the admin; `action` is that of the list:
    action: Promise | str = ""
    button: Promise
    title: Promise
    warning: Promise
    counted: Any  # ngettext_lazy
    logged: Promise
    # In the command, and `done` also in the log:
    help: str = ""
    done: str
    #: `%(status)s` is what it is.
    already: str = ""
    #: In the admin: how many had that state already.
    already_counted: Any = _ALREADY

    @property
    def event(self) -> str:
        """Its name in the log and in the audit trail."""
        return f"{self.done.lower()}_by_hand"

    @property
    def permission(self) -> str:
        """What a user of the admin needs, beside the view of records."""
        return f"django_idempotency.{self.name}_record"

    def act(self, store: Any, record_id: UUID, *, audit: Any) -> Intervention:
        """Change a record of a store. `audit(record)` gets it as it was."""
        changed: Intervention = store.change(record_id, CHANGES[self.name], audit=audit)
        return changed


def intervene(
    verb: Verb,
    store: BaseStore,
    record_id: UUID,
    *,
    alias: str,
    actor: str,
    reason: str,
    note: Audit | None = None,
) -> tuple[Intervention, Record | None]:
    """Change a record, through all layers of the store, so that no copy is left in a front.

    Return the record as it was.

    What is done is written to the audit trail, with `note(record)`: in the transaction of the
    change, where a store has one. It is logged after that.
    Raises what the store raises.
    """
    before: list[Record] = []

    def audit(record: Record) -> None:
        before.append(record)
        if len(before) > 1:  # of one change in two steps
            return
        if note is not None:
            note(record)
        trail.intervened(verb.event, record, actor=actor, reason=reason)

    try:
        outcome = verb.act(store, record_id, audit=audit)
    except IdempotencyError as error:
        # By those nothing was written.
        if before and not isinstance(error, (LostRace, OwnershipLost)):
            sure = not isinstance(error, (StoreUnavailable, OutcomeUnknown))
            _log(verb, before[0], alias=alias, actor=actor, sure=sure)
        raise
    if before and outcome is Intervention.DONE:
        _log(verb, before[0], alias=alias, actor=actor, sure=True)
        if verb.name == "erase":
            erase_beside(store, record_id)
    return outcome, before[0] if before else None


def erase_beside(store: BaseStore, record_id: UUID) -> None:
    """Erase what optional apps store of a record that was erased.

    Raises `StoreUnavailable` if their database is away.
    """
    try:
        for extension in app_extensions():
            extension.erase_record(store, record_id, erased=True)
    except DatabaseError as error:
        raise StoreUnavailable(
            "The response is erased, and what is stored beside it (results of steps) is "
            "not. Type idempotency_erase, the command of "
            f'"{conf.app_with("idempotency_erase")}".'
        ) from error


def _log(verb: Verb, record: Record, *, alias: str, actor: str, sure: bool) -> None:
    """Log who changed a record, and its state before.

    Not `sure`: the outcome of the change is unknown.
    """
    facts: dict[str, Any] = {
        "event": verb.event,
        "sure": sure,
        "user": actor,
        "store": alias,
        "id": str(record.id),
        "key": shortened(record.key),
        "scope": record.scope,
        "method": record.method,
        "path": record.path,
        "status": record.status.name.lower(),
        "attempt": record.attempt,
    }
    logger.warning(
        "%s by hand%s, by %s: record %s of %s in the store %s. It was %s, attempt %d.",
        verb.done,
        "" if sure else ", perhaps: the store did not respond",
        *(facts[fact] for fact in ("user", "id", "scope", "store", "status", "attempt")),
        extra={"idempotency": facts},
    )


def evidence(record: Record, *, erased: bool = False) -> str:
    """Describe a record and its response on one line: status, size, SHA-256 and the address of what
    it made.

    Of a record that is `erased` no trace of the response's content is noted: its hash could be
    compared with a guess.
    """
    return ", ".join(_facts(record, erased=erased))


def _facts(record: Record, *, erased: bool) -> Iterator[str]:
    yield f"{record.status.name.lower()}, attempt {record.attempt}"
    if record.completed_at is not None:
        yield f"completed {record.completed_at.isoformat(timespec='seconds')}"
    failure = failure_of(record)
    if failure is not None:
        yield described(failure)
    outcome = response_of(record)
    if outcome is None:
        return
    named = {name.lower(): value for name, value in outcome.headers}
    yield f"response {outcome.status}"
    if content_type := named.get("content-type"):
        yield redaction.text(content_type)
    location = named.get("location")
    if location and not erased:
        yield f"Location {redaction.text(location)}"
    if outcome.body is MISSING:
        yield "body not stored"
    else:
        yield f"{len(outcome.body):,} bytes"
        if not erased:
            yield f"SHA-256 {sha256(outcome.body).hexdigest()}"


VERBS = {
    "release": Verb(
        name="release",
        action=_("Release selected keys…"),
        button=_("Release…"),
        title=_("Release idempotency keys"),
        warning=_(
            "The stored response is forgotten, and the next request with the key runs the "
            "work again. First make sure "
            "that its effect has not happened: a charge would be made again. A different "
            "body under the key still gets "
            "422."
        ),
        counted=ngettext_lazy("%d record was released.", "%d records were released."),
        logged=_("Released. It was %(evidence)s. Reason: %(reason)s"),
        help="Forget the response: the same request again runs the work, and one with a "
        "different body still gets 422. First "
        "make sure that it had no effect.",
        done="Released",
        already="There is nothing to release: it is %(status)s",
    ),
    "expire": Verb(
        name="expire",
        action=_("Expire selected records…"),
        button=_("Expire…"),
        title=_("Expire idempotency records"),
        warning=_(
            "The record counts as expired from now on. The next request with the key, "
            "whatever its body, runs the work "
            "as if it were the first; a purge deletes the record."
        ),
        counted=ngettext_lazy("%d record has expired.", "%d records have expired."),
        logged=_("Expired. It was %(evidence)s, kept until %(expires)s. Reason: %(reason)s"),
        help="End the retention now: the next request is a new one, whatever its body.",
        done="Expired",
        already="It is expired already",
    ),
    "erase": Verb(
        name="erase",
        action=_("Erase selected records…"),
        button=_("Erase…"),
        title=_("Erase idempotency records"),
        warning=_(
            "The stored response and the request's digest are deleted, in the table and in "
            "every cached copy. The rest of "
            "the record stays until its retention ends. The next request with the key runs "
            "the work as if it were the "
            "first: a charge would be made again."
        ),
        counted=ngettext_lazy("%d record was erased.", "%d records were erased."),
        logged=_("Erased. It was %(evidence)s, kept until %(expires)s. Reason: %(reason)s"),
        help="Delete the response and the request's digest, in the store and in every cache "
        "before it.",
        done="Erased",
        already="It is erased already",
    ),
}
