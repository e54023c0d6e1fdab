"""The facts that travel between a door, the rules and a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, IntEnum
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, final
from uuid import UUID

if TYPE_CHECKING:
    from typing import dataclass_transform  # since Python 3.11, where type checkers run
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        return lambda decorator: decorator


Fact = TypeVar("Fact")


@dataclass_transform(frozen_default=True)
def fact(cls: type[Fact]) -> type[Fact]:
    """Make a class of facts: a frozen dataclass with slots.

    Frozen for type checkers only: a first call makes seven facts, and their freezing at run time took a sixth of its
    time (measured). What every call makes is given by position, all of it: names cost 0.04 µs each, and a default that is
    left out 0.1 (measured; CPython has a short way to such an `__init__`, with just its arguments).
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


def changed(fact: Fact, **changes: Any) -> Fact:
    """Return a ticket, a record or a settlement with other values, in a third of the time of `dataclasses.replace`.

    Raises `AttributeError` for a field that it does not have.
    """
    cls: Any = type(fact)
    copy: Fact = cls(*_values(cls)(fact))
    for name, value in changes.items():
        setattr(copy, name, value)
    return copy


@cache
def _values(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*cls.__slots__)


@final
class Missing(Enum):
    """The type of `MISSING`; an Enum, so that type checkers narrow `is MISSING`."""

    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        raise TypeError("MISSING has no truth value: ask `is MISSING`, since None, 0 and b'' are answers.")


#: "There is none", where `None`, `0`, `""` and `b""` are answers. Test for it with `is`.
MISSING: Final = Missing.MISSING


def shortened(key: str) -> str:
    """Return enough of a key to recognise it, and not enough to use it: never the whole of a short one."""
    return f"{key[: min(8, len(key) // 2)]}…"


class Guarantee(str, Enum):
    """What a route promises (design: "Guarantees")."""

    ATOMIC = "atomic"  # the response is remembered and its writes are committed, or neither happened
    LEASE = "lease"  # runs at least once, the last owner's answer is remembered

    def __str__(self) -> str:
        return self.value


class Status(IntEnum):
    """What a record says of its key. "Expired" is no status: it is read from the deadlines."""

    FREE = 0  # released: the next claim runs the work, as the next attempt
    RUNNING = 1  # claimed by an owner, until its lease lapses
    COMPLETED = 2  # settled: replayed until it expires


class Outcome(NamedTuple):
    """What is remembered of a finished run: an HTTP response as status, headers and bytes.

    Frozen at run time, too: a store in this process hands the same one to everybody, and code of the project sees it.

    `body` is `MISSING` when the work is done but its answer was not kept (too large, a stream, `no-store`);
    `b""` is an empty answer.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | Missing = MISSING


@fact
class Ticket:
    """One call's wish to run: computed once, then never changed.

    `now` is for stores that have no clock of their own. `lease` and `ttl` are seconds.
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
    #: Where the claim has put the record, once that is known (see `Record.place`).
    place: str | None = None


@fact
class Record:
    """A row as it stands. `read_at` is the store's own clock at this read: compare deadlines with it only.

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
    read_at: datetime
    #: What `derive()` is bound to: the same from the key's first claim to its expiry, whoever owns the record.
    operation: UUID
    secret_id: str = ""
    method: str = ""
    path: str = ""
    outcome: Outcome | None = None
    #: Has the claim that returned this record just taken it from an owner who fell silent?
    taken: bool = False
    #: Was it claimed inside a caller's open transaction, so that no other thread sees it?
    joined: bool = False
    #: Which of its tables the store found it in, where that depends on the connection (a schema per tenant), or `None`.
    place: str | None = None

    def ticket(self, *, owner: UUID) -> Ticket:
        """Return a ticket for this record's key and request, to change it by hand: what it takes, it does not hold.

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
        )


@fact
class Settlement:
    """What a store writes when the work is over, if the row is still owned by `fence`.

    `status` is `COMPLETED` (with `outcome`), `FREE` (released), or `RUNNING` where another token of the same work goes on.
    `expires_in` and `lease_in` are seconds from the store's now, and `None` where the deadline stays as it is. `new_life`:
    the row had expired, so it starts again, as `operation`; otherwise that is what the row says. `sign`: nothing is written where the transaction does not say the same of
    itself as when the guard began it (see `Hold.sign`).
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
    sign: str | None = None
