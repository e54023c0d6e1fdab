"""One call of a guarded function that has a key: its ticket, what its work sees, and how it is counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.records import CALL_METHOD, Guarantee
from ..core.rules import Verdict
from ..engine.atomic import AtomicOperation
from ..engine.lease import LeaseOperation
from ..engine.operation import Operation
from ..errors import CalledItself, DeadlinePassed, IdempotencyError, StoreUnavailable
from ..extensions import extended
from ..instrumentation.counting import count, outcome_of_verdict
from ..instrumentation.meters import Source, meters
from ..instrumentation.observer import Observer
from ..instrumentation.outcomes import DEGRADED, outcome_of
from ..runtime.handle import Course
from ..runtime.registry import store_of
from ..runtime.tickets import issue
from ..runtime.transactions import refuse_open_transactions
from .current import CURRENT, BoundCall, CurrentOperation, Takeover, living
from .deadlines import remaining
from .executions import EXECUTION
from .keys import digest_of
from .terms import FunctionTerms


class FunctionCall:
    """A call that has a key. `replaying` says what it gets if it does not run, and `endings` how it ends."""

    observer = Observer()  # without a request
    #: The labels of its figures; `None`: nothing is measured.
    source: Source | None = None
    #: What the work sees, once it runs; or `on_takeover`.
    current: CurrentOperation
    #: Its course, as far as that decides the end.
    course: Course

    def __init__(self, terms: FunctionTerms, payload: Any, key: str, *, reports: bool = True) -> None:
        #: Is its failure reported to somebody who can make it again? Otherwise it is left as one that has crashed.
        self.reports = reports
        self.terms = terms
        self.policy = policy = terms.resolved()
        self.payload = payload
        store, leases = store_of(policy), policy.guarantee is Guarantee.LEASE
        if meters.active:
            self.source = source_of(terms)
            self.observer = Observer(source=self.source)
        if leases:
            refuse_open_transactions()
        left = remaining()
        if left == 0:
            raise DeadlinePassed
        until_then = left if leases else None
        digest = digest_of(terms, payload)
        ticket = issue(
            policy,
            scope=terms.scope_under(policy),
            key=key,
            digest=digest,
            method=CALL_METHOD,
            path=terms.name,
            lease=until_then,
        )
        #: Does the host have a deadline?
        self.hurries = left is not None
        self.execution = EXECUTION.get()
        self.operation: Operation
        if leases:
            make = LeaseOperation if self.execution is None else self.execution.operation
            self.operation = make(
                store,
                ticket,
                self.observer,
                hold_failures=policy.on_failure == "hold",
                renews=until_then is None,
                left=remaining,
            )
        else:
            self.operation = AtomicOperation(store, ticket, self.observer)
        outer = CURRENT.get()
        self._outer = None if outer is None else living(outer)
        if self._outer is not None and self._outer.holds(self.operation):
            raise self.naming(CalledItself())
        #: Seconds to wait for a busy record.
        self.patience = 0.0
        if policy.on_busy == "wait":
            self.patience = policy.wait if left is None else min(policy.wait, left)

    def is_late(self) -> bool:
        """Has the host's deadline passed, for example while the call waited?"""
        return remaining() == 0

    def running(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CurrentOperation:
        """Return the context in which the function runs with these arguments."""
        bound = BoundCall(self.terms, args, kwargs)
        return self._sees(extended(CurrentOperation)(self.operation, self._outer, self.policy, bound))

    def _sees(self, current: CurrentOperation) -> CurrentOperation:
        self.current, self.course = current, current._course(current)  # noqa: SLF001 - ours
        return current

    def takeover(self) -> Takeover | None:
        """Return the takeover that `on_takeover` must decide, if there is one."""
        run = self.operation.run
        if run is None or not run.takeover:
            return None
        takeover = Takeover(self.operation, self.payload, self._outer)
        self._sees(takeover)
        return takeover

    def count(self, verdict: Verdict) -> None:
        """Count a call that runs, or whose stored result is returned."""
        if self.source is not None and (outcome := outcome_of_verdict(verdict, self.operation)) is not None:
            count(self.source, outcome, self.operation)

    def naming(self, error: IdempotencyError) -> IdempotencyError:
        """Set the record on an error, unless the error belongs to another call."""
        if error.key is None:
            ticket = self.operation.ticket
            error.scope, error.key = ticket.scope, ticket.key
        return error

    def go_without_store(self, error: StoreUnavailable) -> None:
        """Report that the store is not responding; raise the error unless the call may run without the store."""
        self.observer("unavailable", self.operation, error)
        self._count_missing_store(error)
        if self._needs_store():
            raise error

    async def ago_without_store(self, error: StoreUnavailable) -> None:
        """See go_without_store()."""
        await self.observer.asend("unavailable", self.operation, error)
        self._count_missing_store(error)
        if self._needs_store():
            raise error

    def _count_missing_store(self, error: StoreUnavailable) -> None:
        if self.source is not None:
            count(self.source, outcome_of(error.code) if self._needs_store() else DEGRADED, self.operation)

    def _needs_store(self) -> bool:
        # The store has just said that this execution is suspended here: it must not run a second time.
        suspended = self.execution is not None and self.execution.is_suspended_in(self.operation)
        return suspended or self.policy.on_store_failure == "closed"


def source_of(terms: FunctionTerms) -> Source:
    """Return what the figures of a function's calls are labelled with."""
    return Source(entry_point="function", route=terms.name, store=terms.resolved().store)
