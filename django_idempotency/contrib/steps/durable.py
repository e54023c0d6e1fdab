"""Durable executions: how one suspends a record in the middle of its work, and resumes it.

It needs nothing else of steps, nor their app.

Such an execution ends with an exception, and its function is called again hours later, in another
process. In between nothing runs, but the key is not free. So the record passes to a token that only
this execution can compute, under a long lease, and later from there to its next invocation. Each
step is one fenced settlement: if two invocations resume it, one wins, and one that was believed to
be over settles nothing.

owner        |-- lease --|
suspended        |------------ resumes within ------------|       the token is made of the execution's name
owner                                  |-- lease --|
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from ...api import (
    EXECUTION,
    LONGEST,
    BaseStore,
    Duration,
    Outcome,
    Record,
    SettledState,
    Status,
    Ticket,
    seconds,
)
from ...core import conclusions, interventions, rules
from ...core.hashing import suspension_token
from ...core.interventions import Intervention
from ...core.records import Settlement
from ...core.rules import Busy, Verdict
from ...engine.lease import LeaseOperation
from ...engine.operation import Operation
from ...engine.settling import Settling
from ...errors import StoreUnavailable
from ...stores.base import Audit, audited

#: Seconds before resuming a record is retried. If only the response was lost, the record is already
#: ours, under a token that no other process knows.
PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class Execution:
    """A durable execution, as its engine names it. `resumes_within` is seconds; `None`: the call's
    retention.
    """

    name: str
    suspended_by: tuple[type[BaseException], ...] = ()
    resumes_within: float | None = None

    def suspends(self, error: BaseException) -> bool:
        """Does an exception suspend this execution?"""
        return isinstance(error, self.suspended_by)

    def operation(self, *given: Any, **options: Any) -> DurableOperation:
        """Return the operation of a call that this execution makes.

        It takes what a `LeaseOperation` takes.
        """
        return DurableOperation(*given, execution=self, **options)

    def is_suspended_in(self, operation: Operation) -> bool:
        """Has the store said that this execution is suspended in a call, and has not resumed it
        since?
        """
        return isinstance(operation, DurableOperation) and operation.resuming > 0

    def suspending_ticket(self, record: Record, ticket: Ticket) -> Ticket:
        """Return the ticket that suspends a record which this ticket owns.

        Its retention outlasts its lease: a record that is not resumed in time counts as crashed,
        and is not forgotten.
        """
        lease = ticket.ttl if self.resumes_within is None else self.resumes_within
        return ticket._replace(owner=self._token(record), lease=lease, ttl=lease + ticket.ttl)

    def has_suspended(self, record: Record) -> bool:
        """Is a record suspended by this execution?"""
        return record.status is Status.RUNNING and record.owner == self._token(record)

    def release(self, store: BaseStore, record_id: UUID, *, audit: Audit, forgetting: bool) -> bool:
        """Free, by hand, a key that this execution has suspended and will not resume.

        Return whether there was one.

        `forgetting`: as if it had never been used. It is a single step, so a concurrent resume is
        not disturbed.
        """
        record = store.get(record_id)
        if (
            record is None
            or not self.has_suspended(record)
            or (freed := interventions.released(record)) is None
        ):
            return False
        nobody = record.ticket(owner=uuid4())
        settlement = freed._replace(expires_in=0) if forgetting else freed

        def free() -> Intervention:
            handed = handed_over(store, nobody, settlement)
            return Intervention.DONE if handed else Intervention.BUSY

        return audited(free, record, audit) is Intervention.DONE

    def _token(self, record: Record) -> UUID:
        return suspension_token(self.name, record.id, record.attempt)


class DurableOperation(LeaseOperation):
    """A call that a durable execution makes: it resumes the record that its execution has
    suspended.
    """

    #: The attempt that our execution has suspended, if it was found and has not been resumed since.
    resuming = 0

    def __init__(self, *given: Any, execution: Execution, **options: Any) -> None:
        super().__init__(*given, **options)
        self.execution = execution

    def _judge(self, record: Record) -> Verdict:
        return super()._judge(self._awake(record))

    def _read(self, record: Record) -> Verdict:
        return rules.read(record, self.ticket, self._unanswered, self.resuming)

    def _awake(self, record: Record) -> Record:
        """Resume a record that our own execution has suspended. Return any other one unchanged."""
        if not (isinstance(self._read(record), Busy) and self.execution.has_suspended(record)):
            return record
        self.resuming = record.attempt
        self.record = record = resumed(self.store, self.ticket, record)
        if not rules.owned(record, self.ticket):
            self.resuming = 0
        return record

    def _settling(
        self, state: SettledState, outcome: Outcome | None, ttl: float | None
    ) -> Settling | None:
        if state is not SettledState.SUSPENDED:
            return super()._settling(state, outcome, ttl)
        self.leave_lease()
        assert self.record is not None, "a suspended call has run"
        ticket = self.execution.suspending_ticket(self.record, self.ticket)
        return Suspending(self, state, ticket, conclusions.handover(self.record, ticket))


class Suspending(Settling):
    """The settlement that suspends a record."""

    def _write(self) -> bool:
        return handed_over(self.operation.store, self.ticket, self.settlement)


def handed_over(store: BaseStore, ticket: Ticket, handover: Settlement) -> bool:
    """Hand a record over from another token. Return whether it is the ticket's now.

    A refused handover is written again, as the ticket's own: it may have been made by an earlier
    try whose response was lost.
    """
    again = handover._replace(fence=ticket.owner)
    return store.settle(ticket, handover) or store.settle(ticket, again)


def resumed(store: BaseStore, ticket: Ticket, record: Record) -> Record:
    """Resume a suspended record under this ticket.

    Returns it unchanged if another invocation won the race.
    """
    handover = conclusions.handover(record, ticket)
    try:
        ours = handed_over(store, ticket, handover)
    except StoreUnavailable:
        time.sleep(PAUSE)
        ours = handed_over(store, ticket, handover)
    return record._replace(owner=ticket.owner) if ours else record


#: Exceptions that leave a function for other reasons, too.
_OTHERS = (BaseException, Exception, KeyboardInterrupt, SystemExit, GeneratorExit, CancelledError)


@contextmanager
def execution(
    name: str,
    *,
    suspended_by: type[BaseException] | tuple[type[BaseException], ...],
    resumes_within: Duration | None = None,
) -> Iterator[None]:
    """Name this durable execution, for example by its ARN, and the exceptions with which its engine
    suspends it.

    Such an exception suspends a guarded call ("lease"): other calls find it busy, and this
    execution resumes it, as the same attempt, when it calls it again. If that takes longer than
    `resumes_within` (seconds or a `timedelta`), the call counts as crashed; the default is the
    call's `expires_after`. Parallel calls in one execution need different names, or one would
    resume the other. Raises `TypeError` or `ValueError` for an invalid argument.
    """
    token = EXECUTION.set(_execution(name, suspended_by, resumes_within))
    try:
        yield
    finally:
        EXECUTION.reset(token)


def _execution(name: Any, suspended_by: Any, resumes_within: Duration | None) -> Execution:
    if not isinstance(name, str):
        raise TypeError(f"execution() takes the name of a durable execution, not {name!r}.")
    if not name or not name.isprintable():
        raise ValueError(
            "execution() needs a name of its own, in printable characters, such as the "
            "execution's ARN."
        )
    classes = suspended_by if isinstance(suspended_by, tuple) else (suspended_by,)
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise TypeError(f"suspended_by takes exception classes, not {cls!r}.")
    if not classes or any(cls in _OTHERS for cls in classes):
        raise ValueError(
            "suspended_by names the exceptions by which the engine suspends an execution, "
            "such as SuspendExecution."
        )
    within = None if resumes_within is None else seconds(resumes_within)
    if within is not None and not 0 < within <= LONGEST:  # also for NaN
        raise ValueError(
            f"resumes_within is seconds, above 0 and at most ten years, not {resumes_within!r}."
        )
    return Execution(name, classes, within)
