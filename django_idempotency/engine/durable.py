"""How a durable execution leaves a record in the middle of its work, and finds it again. Ring 2.

Such an execution ends by an exception, and its function is called again hours later, in another process. In between
nobody works, but the key is not free. So the record passes to a token that this execution alone can name, under a long
lease; and later from there to whoever is called next. Each is one fenced settlement: of two that wake it one wins, and
an invocation that was thought to be over settles nothing.

owner        |-- lease --|
asleep           |------------ resumes within ------------|       the token is made of the execution's name
owner                                  |-- lease --|
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from ..core import rules
from ..core.hashing import suspension_token
from ..core.records import Record, Settlement, Status, Ticket
from ..errors import StoreUnavailable
from ..stores.base import Audit, BaseStore, audited

#: Seconds before it is tried once more to wake a record. Where only the answer was lost, that is ours already, by a token
#: that nobody else has heard of.
PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class Execution:
    """A durable execution, as its engine names it. `resumes_within` is seconds; `None`: the call's retention."""

    name: str
    suspended_by: tuple[type[BaseException], ...] = ()
    resumes_within: float | None = None

    def asleep(self, record: Record, ticket: Ticket) -> Ticket:
        """Return the ticket under which a record sleeps that this one owns.

        Its retention outlasts its lease: what is not woken in time counts as crashed, and is not forgotten.
        """
        lease = ticket.ttl if self.resumes_within is None else self.resumes_within
        return replace(ticket, owner=self._token(record), lease=lease, ttl=lease + ticket.ttl)

    def suspended(self, record: Record) -> bool:
        """Is a record asleep, and this execution's?"""
        return record.status is Status.RUNNING and record.owner == self._token(record)

    def _token(self, record: Record) -> UUID:
        return suspension_token(self.name, record.id, record.attempt)


def passed_on(store: BaseStore, ticket: Ticket, handover: Settlement) -> bool:
    """Settle what another token owns. Say whether it is the ticket's now.

    Who got no answer asks again, and is refused by what its own first try has written: then that is written once more.
    """
    return store.settle(ticket, handover) or store.settle(ticket, replace(handover, fence=ticket.owner))


async def apassed_on(store: BaseStore, ticket: Ticket, handover: Settlement) -> bool:
    """See passed_on()."""
    return await store.asettle(ticket, handover) or await store.asettle(ticket, replace(handover, fence=ticket.owner))


def woken(store: BaseStore, ticket: Ticket, record: Record) -> Record:
    """Pass a record that sleeps on to the ticket. Return it, as it was where another was faster."""
    handover = rules.handover(record, ticket)
    try:
        ours = passed_on(store, ticket, handover)
    except StoreUnavailable:
        time.sleep(PAUSE)
        ours = passed_on(store, ticket, handover)
    return replace(record, owner=ticket.owner) if ours else record


async def awoken(store: BaseStore, ticket: Ticket, record: Record) -> Record:
    """See woken()."""
    handover = rules.handover(record, ticket)
    try:
        ours = await apassed_on(store, ticket, handover)
    except StoreUnavailable:
        await asyncio.sleep(PAUSE)
        ours = await apassed_on(store, ticket, handover)
    return replace(record, owner=ticket.owner) if ours else record


def let_go(store: BaseStore, execution: Execution, record_id: UUID, *, audit: Audit, forgetting: bool) -> bool:
    """Make a key free by hand that this execution has left asleep, and will not wake. Say whether there was one.

    `forgetting`: as if it had never been used. In one step, so who wakes it meanwhile is not disturbed.
    """
    record = store.look(record_id)
    if record is None or not execution.suspended(record) or (freed := rules.released(record)) is None:
        return False
    nobody, settlement = record.ticket(owner=uuid4()), replace(freed, expires_in=0) if forgetting else freed
    return audited(lambda: passed_on(store, nobody, settlement), record, audit)
