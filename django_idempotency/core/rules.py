"""What a claim decides about the record that it finds. Start reading here.

Two rules about the rules:

1. Everything that decides lives here and in two modules beside this one: `conclusions` (how a call
   ends, and what is then written) and `interventions` (what an operator may change). A store knows
   one predicate of them, `takeable` (a copy in front of a store, `answerable_from_copy`), and never
   judges. The entry points translate the verdicts and never judge either. Stores that leave the
   predicate to their server spell it out there: `stores/orm/statements.py`,
   `stores/redis/scripts/change.lua` and `stores/dynamodb/store.py`. The contract in
   `testing/contract` compares each with this module. What a claim, a settlement and a renewal make
   of a record is in `conclusions`.
2. Everything here takes values and returns values. No clock, no I/O: deadlines are compared with
   the `read_at` that the store put beside the row, so both come from one clock.

The life of a record
--------------------

A new record is RUNNING, with its owner's token, a lease and an expiry. When the work ends, it is
settled:

    (none) --claim--> RUNNING --settle--> COMPLETED --expires--> (as if none)
                       |   ^
             release   |   | claim or takeover, attempt + 1
                       v   |
                       FREE

A durable execution leaves its record RUNNING when its engine suspends it, under a token that it can
compute again (see `contrib.steps.durable`).

A claim that finds a record reads it in this order:

1. Another scope or key under the same id: a collision of digests, so `Mismatch` (`is_same_key`).
2. Our own token on a running record: `Execute`. We claimed it a moment ago.
3. Completed, and longer ago than its response is given: `Late` (`seen_for`), whatever the request
   is.
4. Another request under the same key: `Mismatch`, even while the first one runs. The digest binds
   until the record expires, unless a release has lifted it (a refused request may be corrected
   under the same key). Two digests that different expressions made (`incomparable`) do not say that
   the request is another one: the ticket takes the record's.
5. Completed, and not expired: `Replay`, or `Unreadable` if the store found no outcome that it could
   read. One that is sealed and could not be opened (see `at_rest`) is a `Replay` without headers
   and body.
6. `takeable`: free, or expired, or the lease has ended. `Execute` where the store leaves the
   takeover to the guard's row lock (`atomic`), under which it is written before the work runs.
   Elsewhere the store has taken over what it could in the claim itself, so what is left is `Busy`.
7. Running: `Busy` until the lease ends, except for the durable execution that has suspended it.

A claim that finds no record, because another transaction is in its way, is made again after a pause
(`pause_after`). Then its verdict is `Busy` if an owner of this key was in the way, and otherwise
`Contended`: nobody has to be running (`OUTRACED`).

A live lease is never taken over, even if the record has expired meanwhile: its work still runs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from .at_rest import ERASED, HASHED, is_sealed, says_nothing
from .hashing import first_operation, next_operation, request_digest
from .records import (
    CALL_METHOD,
    MISSING,
    REASON,
    TRACE,
    Guarantee,
    Outcome,
    Record,
    Settlement,
    Status,
    Ticket,
)

#: The names of a response's headers, one after the other (RFC 9110 section 5.6.2), and of what is
#: stored behind them.
_NAMES = re.compile(rf"[!#$%&'*+.^_`|~0-9A-Za-z-]*({REASON})?({TRACE})?")


#: The request digest of a function call that is identified by its key alone.
UNBOUND = request_digest(b"call")
#: Begins the name of the expression that made the digest of a function call. It is in place of a
#: request's id.
MADE_BY = "validate:"


class Execute(NamedTuple):
    """Run the work, as this attempt. `takeover`: an earlier owner crashed and may have done part of
    it.

    `resumed`: a durable execution has done part of it, knows which, and continues.
    """

    attempt: int
    takeover: bool = False
    new_life: bool = False
    resumed: bool = False


class Replay(NamedTuple):
    """Return the remembered outcome; the work does not run."""

    outcome: Outcome
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Busy:
    """The work runs elsewhere. Ask again in `retry_after` whole seconds, at least one."""

    retry_after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Contended:
    """Other transactions were in the way of the claim, again and again: nothing ran, and nobody has
    to hold the key.

    Ask again in `retry_after` whole seconds.
    """

    retry_after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """The key was used for another request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Late:
    """The key was used, and its response is no longer given: `seen_for`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """The work was done, but its record is damaged, so its outcome is unknown. It does not run
    again.
    """


Verdict = Execute | Replay | Busy | Contended | Mismatch | Late | Unreadable


class Race(Enum):
    """What was in the way of a claim."""

    HELD = "held"  # an owner of this key: it has locked the record, or has not committed its claim
    # another transaction, of any key or of none: a deadlock, a gap lock, SQLite's one writer
    CONFLICT = "conflict"


#: How often a claim is made before its verdict is what was in the way the last time.
TRIES = {Race.HELD: 2, Race.CONFLICT: 6}
#: The verdict then. Only an owner of the key is said to be running.
OUTRACED: dict[Race, Verdict] = {
    Race.HELD: Busy(retry_after=1),
    Race.CONFLICT: Contended(retry_after=1),
}
#: Seconds of pauses in all, and the first of them, each of which is twice the one before. For an
#: owner of the key the store has waited already.
RACE_PATIENCE = 1.0
RACE_PAUSE = 0.02


def pause_after(race: Race, *, tries: int, spent: float, draw: float) -> float | None:
    """Return the seconds before the next claim; `None`: that was the last, see `OUTRACED`.

    `tries` is how often it was made, `spent` the seconds since the first one failed, and `draw` a
    number from 0 to 1 by which two that are in each other's way go apart.
    """
    if tries >= TRIES[race] or (tries > 1 and spent >= RACE_PATIENCE):
        return None
    if race is Race.HELD:
        return 0.0
    return float(RACE_PAUSE * 2 ** (tries - 1) * (0.5 + draw))


def original_request(found: Record | Ticket) -> str:
    """Return the id of the request that did the work of a record, or will do it under a ticket.

    It is the request's own id, or else the owner token. The token is not a secret: it tells owners
    apart, and it never comes from a client. A function call has no id: what is there says by what
    its digest was made, see `incomparable()`.
    """
    is_request = found.method != CALL_METHOD
    return found.request_id if found.request_id and is_request else str(found.owner)


def expired(record: Record) -> bool:
    """Has the retention ended, with no work under way? It has at the deadline itself."""
    return record.expires_at <= record.read_at and not leased(record)


def leased(record: Record) -> bool:
    """Does an owner's lease still protect the record?"""
    return record.status is Status.RUNNING and record.read_at < record.lease_until


def keep_until(record: Record) -> datetime:
    """Return the moment before which no store deletes the record.

    That is `purge_at`, or the end of a lease beyond it. `purge_at` is the end of the retention as
    the claim fixed it, lengthened when that is lengthened, and never shortened: by neither
    *Expire*, *Erase* nor a response's own `ttl`. So the next life of the key finds the record, and
    derives other keys than this one (see `hashing.first_operation`).
    """
    return (
        max(record.purge_at, record.lease_until)
        if record.status is Status.RUNNING
        else record.purge_at
    )


def is_same_key(record: Record, ticket: Ticket) -> bool:
    """Do a record and a ticket with the same id belong to one key? If not, their digests collide.

    An erased record no longer says whose it was, and a hash depends on a secret that may have
    changed. Their ids do not.
    """
    if record.key == ticket.key and record.scope == ticket.scope:
        return True
    return (
        record.scope == ERASED or record.scope.startswith(HASHED) or ticket.scope.startswith(HASHED)
    )


def binds(record: Record, digest: bytes) -> bool:
    """Does the record only accept a request other than the one with this digest?"""
    return record.digest not in (b"", digest)


def incomparable(record: Record, ticket: Ticket) -> bool:
    """Did another expression make the digest of a function's record than the ticket's?

    Then neither says what the other does.

    It is so after a release that adds, removes or respells `validate=`. `UNBOUND` says that there
    was no expression. Any other digest is beside the name of its expression; one that an earlier
    version of this package made is beside none, and is compared.
    """
    is_call = record.method == ticket.method == CALL_METHOD
    if (
        not is_call
        or not binds(record, ticket.digest)
        or not is_same_key(record, ticket)
        or expired(record)
    ):
        return False
    if UNBOUND in (record.digest, ticket.digest):
        return True
    return record.request_id.startswith(MADE_BY) and record.request_id != ticket.request_id


def owned(record: Record, ticket: Ticket) -> bool:
    """Is the record this ticket's already?

    A lease shorter than the way back from the store changes nothing.
    """
    return record.status is Status.RUNNING and record.owner == ticket.owner


def takeable(record: Record, ticket: Ticket) -> bool:
    """May this ticket become the record's owner?

    The one predicate that stores know (see "The life of a record").
    """
    if not is_same_key(record, ticket):
        return False
    if record.status is Status.COMPLETED:
        return expired(record)
    return not owned(record, ticket) and (expired(record) or _unheld(record, ticket))


def _unheld(record: Record, ticket: Ticket) -> bool:
    """Does a record that is neither completed nor expired wait for an owner, and for this ticket's
    request?
    """
    return not leased(record) and not binds(record, ticket.digest)


def untouched(record: Record, seen: Record, ticket: Ticket, settlement: Settlement) -> bool:
    """May this ticket still settle what it has seen?

    A token alone does not say: an owner's own settle keeps it.

    Our own completed record is never released: an error after COMMIT is no reason to run the work
    again.
    """
    same = (record.owner, record.status, record.attempt) == (seen.owner, seen.status, seen.attempt)
    releases_it = record.status is Status.COMPLETED and settlement.status is not Status.COMPLETED
    return same or (record.owner == ticket.owner and not releases_it)


def born(
    ticket: Ticket, now: datetime, operation: UUID | None = None, location: str | None = None
) -> Record:
    """Return the record that the first claim of a key makes, at the store's `now`.

    `operation` is first_operation() of the ticket, if that is known; `location`, see
    `Record.location`.
    """
    expires_at = now + timedelta(seconds=ticket.ttl)
    return Record(
        id=ticket.id,
        scope=ticket.scope,
        key=ticket.key,
        digest=ticket.digest,
        status=Status.RUNNING,
        owner=ticket.owner,
        attempt=1,
        guarantee=ticket.guarantee,
        lease_until=now + timedelta(seconds=ticket.lease),
        created_at=now,
        completed_at=None,
        expires_at=expires_at,
        purge_at=expires_at,
        read_at=now,
        operation=first_operation(ticket) if operation is None else operation,
        secret_id=ticket.secret_id,
        method=ticket.method,
        path=ticket.path,
        request_id=ticket.request_id,
        location=location,
    )


def succession(record: Record) -> Execute:
    """Say which attempt the next owner of a takeable record is."""
    if expired(record):
        return Execute(attempt=1, new_life=True)
    return Execute(attempt=record.attempt + 1, takeover=record.status is Status.RUNNING)


def operation_of(record: Record, run: Execute) -> UUID:
    """Name the operation that a run of this record works at.

    A new life that is not written yet follows from the record that it replaces. Inside a caller's
    transaction nothing is written before the settle, so a second owner that finds the expired
    record again, after the first one crashed, names the same one.
    """
    return next_operation(record.operation) if run.new_life else record.operation


def seen(record: Record, ticket: Ticket) -> bool:
    """Is the response of a record that has not expired no longer given?

    Its key is only remembered, for `seen_for`.

    Not of a record that an earlier policy made, whose retention has no such part.
    """
    until = record.expires_at - timedelta(seconds=ticket.seen_for)
    return record.completed_at is not None and record.completed_at <= until <= record.read_at


def read(  # noqa: PLR0911 - one a verdict, in the order above
    record: Record, ticket: Ticket, unanswered: bool = False, resuming: int = 0
) -> Verdict:
    """Judge a record for the ticket that claimed it.

    `unanswered`: an earlier claim of the same ticket got no response.

    That claim may have taken the record over from an owner that crashed, without our knowledge.
    Reporting a takeover that did not happen is better than missing one. `resuming` is the attempt
    that the ticket's own execution has suspended (0: none was found): if that is what is ours now,
    it goes on.
    """
    if not is_same_key(record, ticket):
        return Mismatch()
    if owned(record, ticket):
        resumed = record.attempt == resuming
        takeover = record.taken or (unanswered and record.attempt > 1 and not resumed)
        return Execute(attempt=record.attempt, takeover=takeover, resumed=resumed)
    over = expired(record)
    if ticket.seen_for and not over and seen(record, ticket):
        return Late()
    if not over and binds(record, ticket.digest):
        return Mismatch()
    if record.status is Status.COMPLETED and not over:
        outcome = None if record.outcome is None else readable(record.outcome)
        return Unreadable() if outcome is None else Replay(outcome=outcome, attempt=record.attempt)
    if over or _unheld(record, ticket):  # takeable
        return succession(record) if ticket.guarantee is Guarantee.ATOMIC else Busy(retry_after=1)
    return busy(record)


def readable(outcome: Outcome) -> Outcome | None:
    """Return what can be read of what is stored: of a response that has not been opened, only its
    status.

    `None`: it is damaged, or a later version has written it. Its headers are neither all a
    response's nor a mark of ours.
    """
    names = "".join(map(itemgetter(0), outcome.headers))
    if _NAMES.fullmatch(names):
        return outcome
    if is_sealed(outcome):
        return Outcome(status=outcome.status, body=MISSING)
    return outcome if says_nothing(outcome) else None


def answerable_from_copy(record: Record, ticket: Ticket) -> bool:
    """May a copy of the record answer this ticket, without asking the store that decides?

    Never if work may run.
    """
    if not is_same_key(record, ticket) or owned(record, ticket):
        return False
    if record.status is Status.COMPLETED:
        return (
            record.outcome is not None
            and readable(record.outcome) is not None
            and not expired(record)
        )
    return leased(record)


def busy(record: Record) -> Busy:
    """Say when to ask again: when the lease ends, rounded up; at least a second, since zero invites
    a storm.
    """
    left = (record.lease_until - record.read_at) / timedelta(seconds=1)
    return Busy(retry_after=max(1, math.ceil(left)))
