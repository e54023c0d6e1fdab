"""How a durable execution leaves a record in the middle of its work, and finds it again. Ring 2.

Such an execution ends by an exception, and its function is called again hours later, in another process. In between
nobody works, but the key is not free. So the record passes to a token that this execution alone can name, under a long
lease; and later from there to whoever is called next. Both are fenced: of two that resume one wins, and an invocation
that was thought to be over settles nothing.

owner        |-- lease --|
suspended        |------------ resumes within ------------|       the token is made of the execution's name
owner                                  |-- lease --|

Each takes two steps, a settlement and a renewal, in such an order that who dies between them leaves a short lease behind:
then it is taken over, as from any owner who fell silent.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from asgiref.sync import sync_to_async

from .core import rules
from .core.digest import suspension_token
from .core.records import Record, Ticket, changed
from .stores.base import BaseStore


@dataclass(frozen=True, slots=True)
class Execution:
    """A durable execution, as its engine names it. `resumes_within` is seconds; `None`: the call's retention."""

    name: str
    suspended_by: tuple[type[BaseException], ...]
    resumes_within: float | None = None

    def suspended(self, ticket: Ticket, attempt: int) -> Ticket:
        """Return the ticket under which a call of this execution is suspended."""
        lease = ticket.ttl if self.resumes_within is None else self.resumes_within
        return changed(ticket, owner=suspension_token(self.name, ticket.id, attempt), lease=lease)


def renewed(store: BaseStore, ticket: Ticket) -> bool:
    """Let a running record's lease begin anew, if it is the ticket's. Say whether it is, also where a settle got no answer."""
    return ticket.owner in store.renew([ticket])


async def arenewed(store: BaseStore, ticket: Ticket) -> bool:
    """See renewed()."""
    return await sync_to_async(renewed)(store, ticket)


def resume(store: BaseStore, ticket: Ticket, suspended: Ticket, record: Record) -> Record:
    """Pass a suspended record to the ticket. Return it, as it was where another was faster."""
    if not renewed(store, changed(suspended, lease=ticket.lease)):
        return record
    ours = store.settle(ticket, rules.resumption(record, ticket)) or renewed(store, ticket)
    return changed(record, owner=ticket.owner) if ours else record


async def aresume(store: BaseStore, ticket: Ticket, suspended: Ticket, record: Record) -> Record:
    """See resume()."""
    return await sync_to_async(resume)(store, ticket, suspended, record)


def let_go(store: BaseStore, execution: Execution, record_id: UUID) -> bool:
    """End the lease of a record that this execution has suspended, and will not resume. Say whether there is one."""
    record = store.look(record_id)
    if record is None:
        return False
    # A record's own ticket has a lease of no seconds.
    return renewed(store, record.ticket(owner=suspension_token(execution.name, record_id, record.attempt)))
