"""What a store is: a few verbs, each one atomic step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from typing import ClassVar
from uuid import UUID, uuid4

from ..concurrency.threads import in_thread
from ..core import rules
from ..core.records import Record, Settlement, Status, Ticket
from ..errors import StoreUnavailable


class Hold:
    """What a guard holds while the work runs. This one holds nothing, for stores outside the work's transaction."""

    def __init__(self, *, joins: bool = False) -> None:
        #: Does settle join the work's transaction?
        self.joins = joins
        #: The row as it was locked; `None` when somebody else holds it.
        self.record: Record | None = None
        #: What only the work's transaction says of itself, so that a settle can compare it; `None`: `lost()` is to be asked.
        self.sign: str | None = None
        #: After the guard: are the work's writes committed?
        self.committed = not joins

    def mark(self) -> None:
        """Leave a sign in the transaction before the work begins, where it does not have one of itself."""

    def doomed(self) -> bool:
        """Is the work's transaction marked for rollback?"""
        return False

    def lost(self) -> bool:
        """Has the work's transaction been ended or replaced although nobody gave it up? Asks the database, by the sign."""
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


def utcnow() -> datetime:
    """Return the host's clock."""
    return datetime.now(timezone.utc)


#: Called with the record as it stood before an operator's change: to write an audit. `StoreUnavailable` behind it says
#: that the change was tried, and that nobody knows whether it was made.
Audit = Callable[[Record], None]


class Intervention(Enum):
    """How an operator's wish ended."""

    DONE = "done"
    HELD = "held"  # somebody is at work under the key, or has been a moment ago; nothing was changed
    ALREADY = "already"  # it was so before; nothing was changed
    GONE = "gone"  # purged meanwhile


class BaseStore(ABC):
    """Keeps records by key. Thread safe, and without any state of a single call.

    Every verb raises `LostRace` when another was faster and `StoreUnavailable` when nobody answered; neither has
    written anything of ours.
    """

    #: Can `guard` hold a record inside the work's own transaction?
    supports_atomic = False
    #: How long a body can a record hold (bytes)? What a policy does not bound is bounded by this.
    max_body = 1024 * 1024
    #: Does the store's server delete what has expired by itself, so that there is nothing to purge?
    expires_natively = False
    #: Which of its OPTIONS are aliases of other stores? They are handed in as those stores.
    nested: ClassVar[tuple[str, ...]] = ()

    @property
    def place(self) -> Hashable:
        """Where the records are: two stores that say the same keep the same ones."""
        return self

    @abstractmethod
    def claim(self, ticket: Ticket) -> Record:
        """Insert the ticket's record if its key is new, and return the record as it now stands.

        A takeable record is taken over here, unless the ticket asks for `atomic`: then the guard's lock decides.
        """

    async def aclaim(self, ticket: Ticket) -> Record:
        """See claim(), which runs in a thread here. Override it for a driver that is async."""
        return await in_thread(self.claim, ticket, thread_sensitive=False, close=self.close)

    @abstractmethod
    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """Write how the work ended, if the record is still owned by `settlement.fence`. Say whether it was."""

    async def asettle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """See settle(), which runs in a thread here."""
        return await in_thread(self.settle, ticket, settlement, thread_sensitive=False, close=self.close)

    @abstractmethod
    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        """Let the leases of running records begin anew. Return the owner tokens of those that are still theirs.

        Where some have no answer, it raises; the error's `renewed` names those that were renewed all the same.
        """

    def wait(self, ticket: Ticket, *, seconds: float) -> None:  # noqa: B027 - most stores are asked again and again
        """Block while somebody holds the ticket's record, at most so long. Return at once where that cannot be told."""

    def apart(self) -> AbstractContextManager[None]:
        """Ask the store over connections that no request can hold, and give them back. For threads of our own."""
        return _given_back(self)

    def close(self) -> None:  # noqa: B027 - most stores hold nothing
        """Give back what this thread holds of the store, such as a connection."""

    @abstractmethod
    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        """Delete up to `limit` records that have expired and are leased by nobody, oldest first, from `since` on."""

    @abstractmethod
    def look(self, record_id: UUID) -> Record | None:
        """Return a record as it stands, for people and tools; `None` when there is none. Changes nothing."""

    def guard(self, ticket: Ticket, *, takeover: bool = False) -> AbstractContextManager[Hold]:
        """Hold the record while the work runs; `takeover` never waits for whoever may hold it now."""
        return nullcontext(Hold())

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call once what this thread has written is committed: at once, where a write is committed by itself."""
        call()

    # ----------------------------------------------------------------------------------------------- for an operator

    def release(self, record_id: UUID, *, audit: Audit) -> Intervention:
        """Make a key free by hand, if nobody holds it: its answer is forgotten, and its request still binds."""
        return self._intervene(record_id, rules.released, audit)

    def expire(self, record_id: UUID, *, audit: Audit) -> Intervention:
        """Take a record as expired from now on, if nobody holds it."""
        return self._intervene(record_id, rules.expired_now, audit)

    def erase(self, record_id: UUID, *, audit: Audit) -> Intervention:
        """Delete a record by hand, and its answer with it, if nobody holds it: also one that has expired."""
        return self._intervene(record_id, rules.erased, audit, self.discard)

    def discard(self, ticket: Ticket) -> None:  # noqa: B027 - here, what is empty and over goes as all that has expired
        """Delete what the ticket has just emptied, if it is its own still."""

    def _intervene(
        self,
        record_id: UUID,
        change: Callable[[Record], Settlement | None],
        audit: Audit,
        then: Callable[[Ticket], None] = lambda _: None,
    ) -> Intervention:
        record = self.look(record_id)
        if record is None:
            return Intervention.GONE
        settlement = change(record)
        if settlement is None:
            return Intervention.ALREADY
        if rules.leased(record):
            return Intervention.HELD
        if audited(lambda: self._changed_by_hand(record, settlement, then), record, audit):
            return Intervention.DONE
        return Intervention.HELD  # taken or renewed since we looked

    def _changed_by_hand(self, record: Record, settlement: Settlement, then: Callable[[Ticket], None]) -> bool:
        # A new owner token: whoever lost the record to its lease must not settle it after this.
        ticket = record.ticket(owner=uuid4())
        if record.status is Status.RUNNING:
            # A late owner may still renew its lease, so we take it over first, as any claim would; or find that it has.
            if not rules.owned(self.claim(ticket), ticket):
                return False
            settlement = replace(settlement, fence=ticket.owner)
        if not self.settle(ticket, settlement):
            # A driver that got no answer asks again, and is refused by what its own first try has written. And what was
            # taken over had perhaps expired: a server that deletes such records itself may have done so in between.
            found = self.look(record.id)
            if found is not None and found.owner != ticket.owner:
                return False
        then(ticket)
        return True


@contextmanager
def _given_back(store: BaseStore) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(Exception):
            store.close()


def audited(act: Callable[[], bool], record: Record, audit: Audit) -> bool:
    """Change a record by hand, and write the audit of it. `act` says whether it was done."""
    try:
        done = act()
    except StoreUnavailable:
        audit(record)  # it may be written: better an audit of what was tried than none
        raise
    if done:
        audit(record)
    return done
