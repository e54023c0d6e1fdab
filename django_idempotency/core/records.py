"""The facts that pass between an entry point, the rules and a store.

Each is a `NamedTuple`, since several are made per call: a frozen dataclass takes three times as
long to make (measured: 2.7 µs instead of 0.8 for a record). Make them by keyword, which
tests/core/test_records.py checks.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum, IntEnum
from math import inf
from typing import Final, NamedTuple, TypeVar, final
from uuid import UUID

T = TypeVar("T")

#: The largest inflated size of packed data, in a record or in a payload (bytes).
INFLATE_LIMIT = 64 * 1024 * 1024


@final
class Missing(Enum):
    """The type of `MISSING`; an Enum, so that type checkers narrow `is MISSING`."""

    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        raise TypeError(
            "MISSING has no truth value: ask `is MISSING`, since None, 0 and b'' are values."
        )


#: "There is none", in places where `None`, `0`, `""` and `b""` are values. Test for it with `is`.
MISSING: Final = Missing.MISSING


class Unprinted:
    """A client's bytes, a key or a secret. Error reports print the variables of each frame, but not
    its value.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UnprintedText(Unprinted, str):
    """See Unprinted."""

    __slots__ = ()


class UnprintedBytes(Unprinted, bytes):
    """See Unprinted."""

    __slots__ = ()


def prints(*names: str) -> Callable[[type[T]], type[T]]:
    """Let error reports print only these fields of a class.

    Sentry looks into tuples and mappings that do not say how.
    """

    def printed(self: object) -> str:
        fields = "".join(f" {name}={getattr(self, name)!r}" for name in names)
        return f"<{type(self).__name__}{fields}>"

    def decorate(cls: type[T]) -> type[T]:
        for name in ("__repr__", "__sentry_repr__"):
            setattr(cls, name, printed)
        return cls

    return decorate


def shortened(key: str) -> str:
    """Return enough of a key to recognise it, but not enough to use it: never the whole of a short
    key.
    """
    return f"{key[: min(8, len(key) // 2)]}…"


class Guarantee(str, Enum):
    """What a route promises (design: "Guarantees")."""

    ATOMIC = (
        "atomic"  # the response is remembered and its writes are committed, or neither happened
    )
    LEASE = "lease"  # runs at least once, and the last owner's response is remembered

    def __str__(self) -> str:
        return self.value


class Status(IntEnum):
    """The state of a key in its record. "Expired" is not a status: it follows from the
    deadlines.
    """

    FREE = 0  # released: the next claim runs the work, as the next attempt
    RUNNING = 1  # claimed by an owner, until its lease lapses
    COMPLETED = 2  # settled: replayed until it expires


#: By their values, as rows have them: calling an Enum's class takes ten times as long.
STATUSES = {each.value: each for each in Status}
GUARANTEES = {each.value: each for each in Guarantee}


@prints("status")
class Outcome(NamedTuple):
    """What is stored of a finished run: an HTTP response as status, headers and bytes.

    Frozen at run time, too: a store in this process shares one instance, which the project's code
    can see.

    `body` is `MISSING` when the work is done but its response was not stored (too large, a stream,
    `no-store`); `b""` is an empty body.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | Missing = MISSING


#: What a cancellation stores in place of a response. No header has a colon in its name.
CANCELLATION = Outcome(status=409, headers=((":cancelled", "true"),), body=b"")

#: The same of an operation whose steps were all undone: nothing of it remains.
UNDONE = Outcome(status=409, headers=((":undone", "true"),), body=b"")

CANCELLATIONS: Final = (CANCELLATION, UNDONE)

#: The name of an unusual reason phrase among the stored headers. No header has a colon in its name.
REASON: Final = ":reason"

#: The trace context of the run, remembered last among the headers if there is one. No header has a
#: colon in its name.
TRACE: Final = ":traceparent"

#: The method of a function call's record. Its path is the function's name.
CALL_METHOD = "CALL"


class OutcomeKind(Enum):
    """How a function call ended, as recorded. The value is the status that encodes it."""

    RESULT = 200
    HELD = 202  # does not run until a person releases it
    ERROR = 400  # an exception that is raised again

    def __init__(self, status: int) -> None:
        self.status = status
        #: The headers that encode it.
        self.headers: tuple[tuple[str, str], ...] = (
            ("Content-Type", f"application/vnd.django-idempotency.{self.name.lower()}+json"),
        )

    def outcome(self, body: bytes | Missing = MISSING) -> Outcome:
        """Return the outcome of a call that ended this way.

        Its body is missing if it could not be stored.
        """
        return Outcome(self.status, self.headers, body)


_OUTCOME_KINDS: dict[tuple[tuple[str, str], ...], OutcomeKind] = {
    kind.headers: kind for kind in OutcomeKind
}


#: What says that a person must find out how far the work came.
HELD: Final = OutcomeKind.HELD.outcome()


def kind_of(outcome: Outcome | None) -> OutcomeKind | None:
    """Return how a function call ended; `None` if the outcome is not a function's."""
    if outcome is None:
        return None
    headers = outcome.headers
    return _OUTCOME_KINDS.get(headers[:-1] if headers and headers[-1][0] == TRACE else headers)


@prints("id")
class Ticket(NamedTuple):
    """One call's request to run. Computed once and never changed.

    `now` is for stores without a clock of their own. `lease` and `ttl` are seconds.
    """

    id: UUID
    scope: str
    key: str
    digest: bytes
    owner: UUID
    now: datetime
    lease: float
    ttl: float
    guarantee: Guarantee
    secret_id: str = ""
    method: str = ""
    path: str = ""
    #: The id that the request came with; "": none, or none that can be kept.
    request_id: str = ""
    #: Where the claim has put the record, once known (see `Record.location`).
    location: str | None = None
    #: The last part of its `ttl`, in which the key is remembered and its response is no longer
    #: given (seconds).
    seen_for: float = 0.0
    #: How long its work may run before its lease is no longer renewed (seconds).
    longest_run: float = inf


@prints("id", "status", "attempt")
class Record(NamedTuple):
    """A row as it was read. `read_at` is the store's own clock at that read: compare deadlines only
    with it.

    `digest` is `b""` on a released record that another request body may replace.
    """

    id: UUID
    scope: str
    key: str
    digest: bytes
    status: Status
    owner: UUID
    attempt: int
    guarantee: Guarantee
    lease_until: datetime
    created_at: datetime
    completed_at: datetime | None
    expires_at: datetime
    #: No store deletes the record before this moment, even if its response is no longer given: see
    #: `rules.keep_until`.
    purge_at: datetime
    read_at: datetime
    #: The base of `derive()`: the same from the key's first claim to its expiry, for every owner.
    operation: UUID
    secret_id: str = ""
    method: str = ""
    path: str = ""
    #: What the owner's ticket had: each owner brings its own.
    request_id: str = ""
    outcome: Outcome | None = None
    #: Did the claim that returned this record take it over from an owner whose lease had ended?
    taken: bool = False
    #: Was it claimed inside a caller's open transaction, where no other thread sees it?
    joined: bool = False
    #: The table in which the store found it, if that depends on the connection (a schema per
    #: tenant); otherwise `None`.
    location: str | None = None
    #: Does the claim that returned this record stay, whatever becomes of the work and of the
    #: server? Not one inside a caller's open transaction (that of a test case counts as none), or
    #: one that its store commits asynchronously.
    durable: bool = True

    def ticket(self, *, owner: UUID) -> Ticket:
        """Return a ticket for this record's key and request, to change it by hand.

        It does not hold what it takes.

        Its retention ends when the record's does.
        """
        return Ticket(
            id=self.id,
            scope=self.scope,
            key=self.key,
            digest=self.digest,
            owner=owner,
            now=self.read_at,
            lease=0,
            ttl=(self.expires_at - self.read_at).total_seconds(),
            guarantee=Guarantee.LEASE,
            secret_id=self.secret_id,
            method=self.method,
            path=self.path,
            request_id=self.request_id,
        )


class Settlement(NamedTuple):
    """What a store writes when the work is over, if `fence` still owns the row.

    `status` is `COMPLETED` (with `outcome`), `FREE` (released), or `RUNNING` if another token of
    the same work continues. `expires_in` and `lease_in` are seconds from the store's now, and
    `None` if the deadline does not change. `new_life`: the row starts again with what the ticket
    says, as `operation`; otherwise that is what the row says. `transaction_id`: nothing is written
    in any transaction except the one that the guard began (see `Guard.transaction_id`). `alone`:
    the claim was committed by itself, and so must this be. A transaction that is open on its
    connection by then was left by the work, and nobody commits it.
    """

    status: Status
    fence: UUID
    attempt: int
    digest: bytes
    operation: UUID
    outcome: Outcome | None = None
    expires_in: float | None = None
    new_life: bool = False
    lease_in: float | None = None
    transaction_id: str | None = None
    alone: bool = False


# ----------- how often a key came again: counted beside the records, and never in a request's trips


class Repeats(NamedTuple):
    """The retries of one record. `last_seen` is the time of the host that got the last one.

    `replays` got its response, `mismatches` were refused since they had another body. Both are
    lower bounds.
    """

    replays: int
    mismatches: int
    last_seen: datetime


class Counted(NamedTuple):
    """The retries of a record since the last batch. Nothing needs them after `purge_at`, when the
    record is purged.
    """

    record_id: UUID
    repeats: Repeats
    purge_at: datetime
