"""The interface of a store: a few verbs, each one atomic step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID, uuid4

from ..core import interventions
from ..core.conclusions import Rollback
from ..core.interventions import Intervention, Wanted
from ..core.records import MISSING, Record, Settlement, Status, Ticket
from ..errors import ConfigurationError, IdempotencyError, StoreUnavailable

if TYPE_CHECKING:
    from django.core.checks import CheckMessage

    from ..core.records import Counted, Repeats


class Guard:
    """What a guard protects while the work runs, and the context in which it does.

    This one locks nothing, for stores outside the work's transaction.
    """

    #: The row as it was locked; `None` when another holds it.
    record: Record | None = None
    #: The id of the work's transaction, so that a settle can compare it; `None`: it has none.
    transaction_id: str | None = None
    #: Does the settle or the end of the guard find out by itself that the transaction is another
    #: one? If not, call `lost()`.
    finds_loss = False
    #: Are the work's writes committed? Read after the guard; one that joins their transaction
    #: begins with `False`.
    committed = True
    #: What the work tried and a guard makes impossible. It may have handled the error, so its
    #: response is not kept.
    refused: IdempotencyError | None = None
    #: The error behind `Rollback.ERROR`; `None`: it is not known.
    error: BaseException | None = None

    def __enter__(self) -> Guard:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def restore(self) -> None:
        """Leave nothing of the guard behind, wherever an interrupt has cut it.

        Does nothing after its end.
        """

    def mark(self) -> None:
        """Mark the transaction before the work begins, if it has no identity of its own."""

    def needs_rollback(self) -> bool:
        """Is the work's transaction marked for rollback?"""
        return False

    def rollback_cause(self) -> Rollback:
        """Say why the work's transaction is marked for rollback. In doubt it was an error."""
        return Rollback.ERROR if self.needs_rollback() else Rollback.NONE

    def lost(self) -> bool:
        """Has the work's transaction ended or been replaced, other than by an error or
        `set_rollback()`? Asks the database.
        """
        return False

    def count_writes(self) -> None:
        """Note how much this connection has written so far, if `wrote()` compares with that."""

    def wrote(self) -> bool:
        """Has the work written in its database, in a transaction that will be committed?

        Asks the database; in doubt it has.
        """
        return True

    def set_rollback(self) -> None:
        """Roll the work's transaction back when the guard ends."""

    def refuse(self, error: IdempotencyError) -> IdempotencyError:
        """Note and return the error of what the work tried."""
        self.refused = error
        return error

    def savepoint(self) -> AbstractContextManager[None]:
        """Let a receiver use the work's transaction; its errors are contained in this block."""
        return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """One batch of a scan: its records, and the number of rows that could not be read."""

    records: Sequence[Record]
    unreadable: int = 0


def without_body(record: Record) -> Record:
    """Return a record whose outcome has no body, for a scan."""
    return (
        record
        if record.outcome is None
        else record._replace(outcome=record.outcome._replace(body=MISSING))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """One batch of a purge: the number of rows deleted, and the deadline to resume from (`None`:
    nothing is left).
    """

    count: int
    resume: datetime | None


def utcnow() -> datetime:
    """Return the host's clock."""
    return datetime.now(timezone.utc)


#: Called with the record as it was before an operator's change, to write an audit. If
#: `StoreUnavailable` follows, the change was tried, and its outcome is unknown.
Audit = Callable[[Record], None]


class BaseStore(ABC):
    """Keeps records by key. Thread safe: it holds no state of a single call.

    Every verb raises `LostRace` if another transaction was in its way, whosever that is, and
    `StoreUnavailable` if the store did not respond. claim() raises `InProgress` if an owner of its
    key is certainly in the way, whose record cannot be read yet. In all cases nothing of ours was
    written.
    """

    #: Can `guard` hold a record inside the work's own transaction?
    supports_atomic = False
    #: The longest body that a record can hold (bytes), the limit of a policy without one.
    max_body = 1024 * 1024
    #: Does the store's server delete expired records, so that there is nothing to purge?
    expires_natively = False
    #: Are its records in this process's memory, where no other process sees them?
    in_process = False
    #: Does it need a table that `create_table()` makes?
    creates_table = False
    #: Can it keep how often a key came again (COUNT_REPLAYS)?
    counts_repeats = False
    #: The store that it is around, see `stores.wrapper`; `None`: it keeps the records itself.
    inside: BaseStore | None = None
    #: The database whose transaction its guard joins, or `None`.
    using: Any = None
    #: The database in which its records are rows of `IdempotencyRecord`, or `None`.
    rows_in: str | None = None
    #: Which of its OPTIONS are aliases of other stores? Those stores are passed instead.
    nested: ClassVar[tuple[str, ...]] = ()

    # ------------------------------------------------------------------- for a project that uses it

    def check(
        self, alias: str, *, deploy: bool = False, copies_only: bool = False
    ) -> Iterable[CheckMessage]:
        """Check the store's options, for `manage.py check`.

        With `deploy`, query its server instead.

        `alias` is its name in STORES. `copies_only`: it is only the front of other stores. With
        `deploy` it may raise.
        """
        from .database_checks import check_database  # not above: a server needs no check

        return check_database(alias, self.using) if self.using is not None and not deploy else ()

    # Most stores need none of it.
    def configure(self, *, claim_lease: Callable[[], float]) -> None:  # noqa: B027
        """Accept the project's settings once the store is built.

        `claim_lease` reads CLAIM_LEASE, in seconds.
        """

    def count_due(self, *, limit: int) -> int | None:
        """Count what a purge would delete, up to `limit`; `None`: this store cannot count."""
        return None

    def create_table(self, *, dry_run: bool = False) -> Iterator[str]:
        """Create the missing parts of the store's table, and yield a sentence about each step.

        See `creates_table`.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------------------------ the verbs

    @property
    def location(self) -> Hashable:
        """Identifies where the records are: two stores with equal values keep the same records."""
        return self

    @abstractmethod
    def claim(self, ticket: Ticket) -> Record:
        """Insert the ticket's record if its key is new, and return the current record.

        A takeable record is taken over here, unless the ticket asks for `atomic`: then the guard's
        lock decides.
        """

    @abstractmethod
    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """Write how the work ended, if the record is still owned by `settlement.fence`.

        Return whether it was.
        """

    def commit(self, guard: Guard, ticket: Ticket, settlement: Settlement) -> bool:
        """Write how the work ended as the last statement of its guard's transaction, and commit.

        Return whether the record was ours. `ORMStore.commit` has what it raises.
        """
        settled = self.settle(ticket, settlement)
        if settled:
            guard.__exit__(None, None, None)
        return settled

    @abstractmethod
    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        """Renew the leases of running records. Return the owner tokens that still own their record.

        Raises if some renewals fail; the error's `renewed` has the tokens of those that succeeded.
        """

    # Most stores are polled.
    def wait(self, ticket: Ticket, *, seconds: float) -> None:  # noqa: B027
        """Block while another owner holds the ticket's record, at most `seconds`.

        Return at once if that is unknown.
        """

    def apart(self) -> AbstractContextManager[None]:
        """Use the store over connections that no request can hold, and release them at the end.

        For our own threads.
        """
        return _given_back(self)

    def savepoint(self) -> AbstractContextManager[None]:
        """Protect a transaction that is open on the store's connection from failures of other code
        in this block.
        """
        return nullcontext()

    def close(self) -> None:  # noqa: B027 - most stores hold nothing
        """Release this thread's resources, such as a connection."""

    @abstractmethod
    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        """Delete up to `limit` records whose `rules.keep_until()` has passed, by `purge_at`,
        starting at `since`.
        """

    @abstractmethod
    def get(self, record_id: UUID) -> Record | None:
        """Return the current record, for people and tools; `None` when there is none.

        Changes nothing.
        """

    def scan(self, *, size: int = 1000, bodies: bool = False) -> Iterator[Scanned]:
        """Yield all records in batches of about `size`, for people and tools.

        Each batch is one bounded request.

        A record that is written meanwhile may come twice, or not at all. Without `bodies`, no
        outcome has its body. Raises `ConfigurationError` if the store cannot list its records.
        """
        raise ConfigurationError(f"{type(self).__name__} cannot list its records.")

    def size(self) -> int | None:
        """Return how much room the records take on the server, indexes included (bytes); `None`: it
        cannot say.
        """
        return None

    def add_repeats(self, batch: Sequence[Counted]) -> None:  # noqa: B027 - most stores count none
        """Add what was counted since the last batch.

        Called by a thread of ours, never by a request.
        """

    def repeats(self, record_id: UUID) -> Repeats | None:
        """Return how often a key came again, for people and tools; `None`: nothing was counted."""
        return None

    def guard(
        self, ticket: Ticket, *, takeover: bool = False, claimed: Record | None = None
    ) -> AbstractContextManager[Guard]:
        """Hold the record while the work runs. With `takeover`, do not wait for a current holder.

        For `atomic` its `record` is the row as it was locked: `None` says that another holds it,
        and the work does not run. `claimed` is the record that the ticket owns, as its claim
        returned it: then only what could have changed is read, and `record` is that one; `None` if
        it has changed.
        """
        return Guard()

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call it once this thread's writes are committed: at once if each write is committed
        separately.
        """
        call()

    # ------------------------------------------------------------------------------ for an operator

    def change(self, record_id: UUID, wanted: Wanted, *, audit: Audit) -> Intervention:
        """Change a record by hand, unless it is held.

        `wanted` is one of `core.interventions`, such as `released`.
        """
        decided = interventions.intervention(self.get(record_id), wanted)
        if isinstance(decided, Intervention):
            return decided
        return audited(lambda: self._change_by_hand(decided), decided.record, audit)

    def _change_by_hand(self, change: interventions.Change) -> Intervention:
        # A new owner token: an owner that lost the record with its lease must not settle it after
        # this.
        ticket = interventions.ticket_by_hand(change, uuid4())
        if change.record.status is Status.RUNNING:
            decided = interventions.taken_by_hand(change, self.claim(ticket), ticket)
            if isinstance(decided, Intervention):
                return decided
            change = decided
        if self.settle(ticket, change.settlement):
            return change.outcome
        return interventions.refused_by_hand(change, self.get(ticket.id), ticket)


def layers(store: BaseStore) -> Sequence[BaseStore]:
    """Return a store, then the store inside it, and so on, down to the innermost."""
    found = [store]
    while isinstance(inside := found[-1].inside, BaseStore) and inside not in found:
        found.append(inside)
    return found


def innermost(store: BaseStore) -> BaseStore:
    """Return the store inside all wrappers."""
    return layers(store)[-1]


def records_of(store: BaseStore) -> Hashable:
    """Identify the records that a store keeps, so that two stores of one table compare equal."""
    return store.using or innermost(store).location


@contextmanager
def _given_back(store: BaseStore) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(Exception):
            store.close()


def audited(act: Callable[[], Intervention], record: Record, audit: Audit) -> Intervention:
    """Change a record by hand, and write its audit if that was done."""
    try:
        outcome = act()
    except StoreUnavailable:
        audit(record)  # it may have been written: better to audit an attempt than nothing
        raise
    if outcome is Intervention.DONE:
        audit(record)
    return outcome
