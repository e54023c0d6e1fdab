"""Every row of `core/rules.py`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from django_idempotency.core import rules
from django_idempotency.core.records import Guarantee, Outcome, Record, Status
from django_idempotency.core.rules import (
    OUTRACED,
    Busy,
    Contended,
    Execute,
    Mismatch,
    Race,
    Replay,
    pause_after,
)
from django_idempotency.testing.tickets import NOW, make_ticket

FREE, RUNNING, COMPLETED = Status.FREE, Status.RUNNING, Status.COMPLETED
ATOMIC, LEASE = Guarantee.ATOMIC, Guarantee.LEASE

OTHER = UUID(int=7)  # the owner of a record, unless a row says otherwise
FIRST = UUID(int=8)  # the record's first operation
TICKET = make_ticket()
SAME, CHANGED, UNBOUND = TICKET.digest, b"another request".ljust(32), b""
OUTCOME = Outcome(status=201, body=b"")
TICK = timedelta(microseconds=1)


def record(
    *, lease: timedelta = timedelta(0), expiry: timedelta = timedelta(days=1), **fields: Any
) -> Record:
    """Make a record of TICKET's key with another owner.

    `lease` and `expiry` count from the moment of reading.
    """
    status = fields.get("status", RUNNING)
    made = Record(
        id=TICKET.id,
        scope=TICKET.scope,
        key=TICKET.key,
        digest=SAME,
        status=status,
        owner=OTHER,
        attempt=3,
        guarantee=LEASE,
        lease_until=NOW + lease,
        created_at=NOW - timedelta(hours=1),
        completed_at=NOW if status is COMPLETED else None,
        expires_at=NOW + expiry,
        purge_at=NOW + expiry,
        read_at=NOW,
        operation=FIRST,
        outcome=OUTCOME if status is COMPLETED else None,
    )
    return made._replace(**fields)


ZERO, HOUR = timedelta(0), timedelta(hours=1)

# ---------------------------------------------------------------------------------------- deadlines


@pytest.mark.parametrize(
    ("status", "expiry", "lease", "is_expired"),
    [
        (COMPLETED, TICK, ZERO, False),  # one microsecond left
        (COMPLETED, ZERO, ZERO, True),  # the deadline itself already counts as past
        (COMPLETED, -TICK, ZERO, True),
        (COMPLETED, ZERO, HOUR, True),  # a settled record's lease has no meaning any more
        (FREE, ZERO, HOUR, True),  # nor has a released one's
        (RUNNING, ZERO, ZERO, True),  # lapsed and past its expiry
        (RUNNING, -HOUR, TICK, False),  # its work still runs
    ],
)
def test_expired(status: Status, expiry: timedelta, lease: timedelta, is_expired: bool) -> None:
    """A record expires at its deadline, but never under an owner whose lease is live."""
    known = record(status=status, expiry=expiry, lease=lease)
    assert rules.expired(known) is is_expired
    # The time from which a store may delete it.
    assert (rules.keep_until(known) <= known.read_at) is is_expired


@pytest.mark.parametrize(
    ("status", "lease", "is_leased"),
    [
        (RUNNING, TICK, True),
        (RUNNING, ZERO, False),  # the lease's end is not part of it
        (RUNNING, -TICK, False),
        (FREE, HOUR, False),  # released early: the key is free at once
        (COMPLETED, HOUR, False),  # settled early: replayed at once
    ],
)
def test_leased(status: Status, lease: timedelta, is_leased: bool) -> None:
    """Only a running record is leased, until its deadline."""
    assert rules.leased(record(status=status, lease=lease)) is is_leased


@pytest.mark.parametrize(("digest", "binds"), [(SAME, False), (CHANGED, True), (UNBOUND, False)])
def test_binds(digest: bytes, binds: bool) -> None:
    """A record insists on its own request, unless its release unbound it."""
    assert rules.binds(record(digest=digest), TICKET.digest) is binds


# ----------------------------------------------------------------------------- the life of a record


def completed_with(name: str) -> Record:
    """Return a completed record with one header, of which a response has no such one."""
    return record(status=COMPLETED, outcome=Outcome(201, ((name, "as stored"),), b"\x01ciphertext"))


#: What a claim may meet, whether it can be taken, and the verdicts for a `lease` and for an
#: `atomic` ticket.
MEETINGS: list[tuple[str, Record, bool, rules.Verdict, rules.Verdict]] = [
    ("free", record(status=FREE), True, Busy(retry_after=1), Execute(attempt=4)),
    (
        "free, another request, bound",
        record(status=FREE, digest=CHANGED),
        False,
        Mismatch(),
        Mismatch(),
    ),
    (
        "free, another request, unbound",
        record(status=FREE, digest=UNBOUND),
        True,
        Busy(retry_after=1),
        Execute(attempt=4),
    ),
    ("lapsed", record(), True, Busy(retry_after=1), Execute(attempt=4, takeover=True)),
    (
        "completed, damaged",
        record(status=COMPLETED, outcome=None),
        False,
        rules.Unreadable(),
        rules.Unreadable(),
    ),
    *(
        (
            f"completed, damaged: {name}",
            completed_with(name),
            False,
            rules.Unreadable(),
            rules.Unreadable(),
        )
        for name in (
            ":sealfd",
            ";sealed",
            "\x1asealed",
            ":cancelled",
            ":erased2",
            ":",
            "Content Type",
            ":reason:failed",
        )
    ),
    ("lapsed, another request", record(digest=CHANGED), False, Mismatch(), Mismatch()),
    ("running", record(lease=HOUR), False, Busy(retry_after=3600), Busy(retry_after=3600)),
    (
        "running for a microsecond more",
        record(lease=TICK),
        False,
        Busy(retry_after=1),
        Busy(retry_after=1),
    ),
    # Mismatch takes precedence over busy: waiting would not help this client.
    ("running, another request", record(lease=HOUR, digest=CHANGED), False, Mismatch(), Mismatch()),
    (
        "running beyond its expiry",
        record(lease=HOUR, expiry=-HOUR),
        False,
        Busy(retry_after=3600),
        Busy(retry_after=3600),
    ),
    (
        "the same, another request",
        record(lease=HOUR, expiry=-HOUR, digest=CHANGED),
        False,
        Mismatch(),
        Mismatch(),
    ),
    # Our own token: we claimed it just now, by insert or by takeover.
    ("ours", record(owner=TICKET.owner, lease=HOUR), False, Execute(attempt=3), Execute(attempt=3)),
    # A lease shorter than the trip back from the store is no reason to take ourselves over.
    ("ours, lapsed", record(owner=TICKET.owner), False, Execute(attempt=3), Execute(attempt=3)),
    (
        "ours, already settled",  # an entry point that asks twice does not run twice
        record(owner=TICKET.owner, status=COMPLETED),
        False,
        Replay(outcome=OUTCOME, attempt=3),
        Replay(outcome=OUTCOME, attempt=3),
    ),
    (
        "completed",
        record(status=COMPLETED),
        False,
        Replay(outcome=OUTCOME, attempt=3),
        Replay(outcome=OUTCOME, attempt=3),
    ),
    (
        "completed, another request",
        record(status=COMPLETED, digest=CHANGED),
        False,
        Mismatch(),
        Mismatch(),
    ),
    # Beyond its expiry a record counts as absent: a new life, and the old request binds nothing.
    (
        "expired",
        record(status=COMPLETED, expiry=ZERO),
        True,
        Busy(retry_after=1),
        Execute(attempt=1, new_life=True),
    ),
    (
        "expired, another request",
        record(status=COMPLETED, expiry=ZERO, digest=CHANGED),
        True,
        Busy(retry_after=1),
        Execute(attempt=1, new_life=True),
    ),
    (
        "free, expired",
        record(status=FREE, expiry=ZERO),
        True,
        Busy(retry_after=1),
        Execute(attempt=1, new_life=True),
    ),
    # It was not finished, and expired before the next claim: not a takeover, since nothing of it
    # counts any more.
    (
        "lapsed, expired",
        record(expiry=ZERO),
        True,
        Busy(retry_after=1),
        Execute(attempt=1, new_life=True),
    ),
    # A collision of digests. The stored columns decide, whatever else the record contains.
    ("another scope", record(scope="user:2", status=FREE), False, Mismatch(), Mismatch()),
    ("another key", record(key="key-2", status=COMPLETED), False, Mismatch(), Mismatch()),
    ("another scope, expired", record(scope="user:2", expiry=ZERO), False, Mismatch(), Mismatch()),
]
NAMED = [pytest.param(*row[1:], id=row[0]) for row in MEETINGS]


@pytest.mark.parametrize(("met", "takeable", "by_lease", "by_atomic"), NAMED)
def test_takeable(
    met: Record, takeable: bool, by_lease: rules.Verdict, by_atomic: rules.Verdict
) -> None:
    """A free, expired or lapsed record can be taken, but never for another request or another
    key.
    """
    assert rules.takeable(met, TICKET) is takeable


@pytest.mark.parametrize(("met", "takeable", "by_lease", "by_atomic"), NAMED)
def test_read(
    met: Record, takeable: bool, by_lease: rules.Verdict, by_atomic: rules.Verdict
) -> None:
    """A `lease` store took what it could, so the rest is busy; with `atomic` the guard's lock
    decides later.
    """
    assert rules.read(met, TICKET._replace(guarantee=LEASE)) == by_lease
    assert rules.read(met, TICKET._replace(guarantee=ATOMIC)) == by_atomic


#: The cases that a copy of the record can answer: only time or an operator can change their
#: verdict.
ANSWERABLE_FROM_COPY = {
    *("running", "running for a microsecond more", "running, another request"),
    *("running beyond its expiry", "the same, another request"),
    *("completed", "completed, another request", "ours, already settled"),
}


@pytest.mark.parametrize(("name", "met"), [row[:2] for row in MEETINGS])
def test_quotable(name: str, met: Record) -> None:
    """Live work and remembered responses can be quoted, but never our own record, a runnable one,
    or another key's.
    """
    assert rules.answerable_from_copy(met, TICKET) is (name in ANSWERABLE_FROM_COPY)


@pytest.mark.parametrize(
    ("met", "run"),
    [
        (record(status=FREE), Execute(attempt=4)),  # released on purpose
        (record(), Execute(attempt=4, takeover=True)),  # crashed: part of it may be done
        (record(expiry=ZERO), Execute(attempt=1, new_life=True)),  # forgotten
        (record(status=COMPLETED, expiry=ZERO), Execute(attempt=1, new_life=True)),
    ],
)
def test_succession(met: Record, run: Execute) -> None:
    """Attempts count up within one life of a key and start again with the next life."""
    assert rules.succession(met) == run


@pytest.mark.parametrize(
    ("left", "retry_after"),
    [
        (timedelta(seconds=-9), 1),  # overdue; zero would invite a storm
        (ZERO, 1),
        (timedelta(seconds=1), 1),
        (timedelta(seconds=1) + TICK, 2),  # rounded up, since earlier would be too early
        (timedelta(days=2), 172800),  # includes the days of a timedelta
    ],
)
def test_busy(left: timedelta, retry_after: int) -> None:
    """A duplicate learns when the lease ends, in whole seconds, at least one."""
    assert rules.busy(record(lease=left)) == Busy(retry_after=retry_after)


def test_only_the_stores_clock_counts() -> None:
    """A ticket's own `now` decides nothing: the clocks of two machines differ."""
    late = TICKET._replace(now=NOW + timedelta(days=365))
    assert rules.read(record(lease=HOUR), late) == Busy(retry_after=3600)
    assert rules.takeable(record(lease=HOUR), late) is False


@pytest.mark.parametrize(
    ("race", "tries", "spent", "pause"),
    [
        # An owner of the key: the store has waited already, so the second claim is made at once,
        # and is the last.
        (Race.HELD, 1, 0.0, 0.0),
        (Race.HELD, 1, 5.0, 0.0),
        (Race.HELD, 2, 0.0, None),
        # Anybody else: each pause is twice the one before, for about a second. After a wait of the
        # store's own, two claims.
        (Race.CONFLICT, 1, 0.0, 0.02),
        (Race.CONFLICT, 2, 0.02, 0.04),
        (Race.CONFLICT, 5, 0.3, 0.32),
        (Race.CONFLICT, 6, 0.6, None),
        (Race.CONFLICT, 1, 5.0, 0.02),
        (Race.CONFLICT, 2, 5.0, None),
    ],
)
def test_a_claim_after_a_lost_race(
    race: Race, tries: int, spent: float, pause: float | None
) -> None:
    """A claim that lost a race is made again after a pause, a few times."""
    assert pause_after(race, tries=tries, spent=spent, draw=0.5) == pause
    drawn = [pause_after(race, tries=tries, spent=spent, draw=draw) for draw in (0.0, 1.0)]
    assert drawn == ([None, None] if pause is None else [pause * 0.5, pause * 1.5])


def test_who_is_said_to_be_running() -> None:
    """Only where an owner of the key was in the way."""
    assert {race for race, verdict in OUTRACED.items() if isinstance(verdict, Busy)} == {Race.HELD}
    assert set(OUTRACED) == set(Race)
    assert OUTRACED[Race.CONFLICT] == Contended(retry_after=1)
