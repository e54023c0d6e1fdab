"""What a store is: a few verbs, each one atomic step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ..core.records import Record, Settlement, Ticket


class Hold:
    """What a guard holds while the work runs. This one holds nothing, for stores outside the work's transaction."""

    def __init__(self, *, joins: bool = False) -> None:
        #: Does settle join the work's transaction?
        self.joins = joins
        #: The row as it was locked; `None` when somebody else holds it.
        self.record: Record | None = None
        #: After the guard: are the work's writes committed?
        self.committed = not joins

    def doomed(self) -> bool:
        """Is the work's transaction marked for rollback?"""
        return False

    def broken(self) -> bool:
        """Has the work's transaction lost its connection, so that what it wrote is gone although nobody gave it up?"""
        return False

    def give_up(self) -> None:
        """Roll the work's transaction back when the guard ends."""

    def aside(self) -> AbstractContextManager[None]:
        """Let a receiver of ours use the work's transaction; what it breaks there ends with this block."""
        return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """One batch of a purge: how many rows went, and the deadline to resume from (`None`: nothing is left)."""

    count: int
    resume: datetime | None


class BaseStore(ABC):
    """Keeps records by key. Thread safe, and without any state of a single call.

    Every verb raises `LostRace` when another was faster and `StoreUnavailable` when nobody answered; neither has
    written anything of ours.
    """

    #: Can `guard` hold a record inside the work's own transaction?
    supports_atomic = False

    @abstractmethod
    def claim(self, ticket: Ticket) -> Record:
        """Insert the ticket's record if its key is new, and return the record as it now stands.

        A takeable record is taken over here, unless the ticket asks for `atomic`: then the guard's lock decides.
        """

    @abstractmethod
    async def aclaim(self, ticket: Ticket) -> Record:
        """See claim()."""

    @abstractmethod
    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """Write how the work ended, if the record is still owned by `settlement.fence`. Say whether it was."""

    @abstractmethod
    async def asettle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """See settle()."""

    @abstractmethod
    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        """Let the leases of running records begin anew. Return the owner tokens of those that are still theirs."""

    def close(self) -> None:  # noqa: B027 - most stores hold nothing
        """Give back what this thread holds of the store, such as a connection."""

    @abstractmethod
    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        """Delete up to `limit` records that have expired and are leased by nobody, oldest first, from `since` on."""

    @contextmanager
    def guard(self, ticket: Ticket, *, takeover: bool = False) -> Iterator[Hold]:
        """Hold the record while the work runs; `takeover` never waits for whoever may hold it now."""
        yield Hold()
