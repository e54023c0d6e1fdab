"""One HTTP exchange under a key: the steps that all entry points share, in order.

An entry point decides *where* the guard is. The rest is here and in `settling`: what is checked, what is refused, what
is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.encoding import escape_uri_path

from ..core.policy import Resolved
from ..core.records import Guarantee, Outcome
from ..core.rules import Execute, Replay, Verdict
from ..engine.atomic import AtomicOperation
from ..engine.lease import LeaseOperation
from ..engine.operation import Operation
from ..errors import ReplayRefused, ScopeRequired, StoreUnavailable
from ..instrumentation.observer import Observer
from ..runtime.registry import store_of
from ..runtime.tickets import issue
from ..runtime.transactions import arefuse_open_transactions, refuse_open_transactions
from .admission import GUARDED_BY, Key, Where
from .atomic_requests import OpenedTransactions
from .fingerprint import fingerprint
from .keys import request_id_of, scope_of
from .problems import refusal_of
from .responses import rebuild
from .selection import Document, selected_key
from .settling import RunningExchange
from .status import HeaderStatus, note
from .unguarded import NOBODY, leave_unguarded


def exchange_of(request: HttpRequest) -> Exchange | None:
    """Return the exchange that guards a request now."""
    return getattr(request, GUARDED_BY, None)


class Exchange(RunningExchange):
    """A request with a key: `open()` it, and if that returns no response, run the view and `settle()` or `fail()`."""

    def __init__(
        self,
        request: HttpRequest,
        policy: Resolved,
        *,
        key: str,
        scope: str,
        document: Document,
        non_atomic: AbstractSet[str] = frozenset(),
        ask_again: Callable[..., None] | None = None,
    ) -> None:
        self._ask_again = ask_again
        self._observer = Observer(request)
        store = store_of(policy)
        ticket = issue(
            policy,
            scope=scope,
            key=key,
            digest=fingerprint(document.source, policy, document),
            method=request.method or "",
            path=escape_uri_path(request.path),
            request_id=request_id_of(request),
        )
        operation: Operation
        if policy.guarantee is Guarantee.LEASE:
            hold_failures = policy.on_failure == "hold"
            operation = LeaseOperation(store, ticket, self._observer, hold_failures=hold_failures)
        else:
            operation = AtomicOperation(store, ticket, self._observer)
        super().__init__(request, policy, operation, non_atomic=non_atomic)

    @classmethod
    def of(
        cls,
        request: HttpRequest,
        policy: Resolved,
        *,
        key: Key,
        user: Any,
        source: Any,
        strict: bool = True,
        non_atomic: AbstractSet[str] = frozenset(),
        ask_again: Callable[..., None] | None = None,
    ) -> Exchange | None:
        """Return the exchange of a keyed request; for a key without a principal `None`, or if `strict` `ScopeRequired`.

        If keys are required it is always `ScopeRequired`: nothing may run unguarded there. A request without the
        header is refused only then, and also gets `None` when there is nothing to select its key from. `source` is the
        request that the view sees (DRF's, or Django's), which parses the body as the view would. `non_atomic` are the
        databases that the view excludes from ATOMIC_REQUESTS. `ask_again` repeats the view's access checks before a
        replay.
        """
        carried = "" if key is Where.PAYLOAD else key
        scope = scope_of(request, user, policy, carried)
        if scope is None:
            if policy.required or (strict and carried):
                raise ScopeRequired
            if strict or carried:
                leave_unguarded(request, NOBODY)
            return None
        document = Document(source, user, policy.max_request_body)
        selected = carried or selected_key(document, policy)
        if selected is None:
            return None
        facts = {"key": selected, "scope": scope}
        return cls(request, policy, **facts, document=document, non_atomic=non_atomic, ask_again=ask_again)

    @property
    def atomic_alias(self) -> str | None:
        """Return the database of the guard's transaction while the view runs."""
        if self.degraded or self._leases:
            return None
        return self._record_alias

    @property
    def _leases(self) -> bool:
        return self.operation.ticket.guarantee is Guarantee.LEASE

    # --------------------------------------------------------------------------------------------------------- open

    def open(self, within: OpenedTransactions | None = None) -> HttpResponseBase | None:
        """Return the response to send instead of the view's, or `None`: run the view.

        `within` are the transactions of ATOMIC_REQUESTS, which the caller ends before settle() or fail(). The one on
        the record's database is taken over, and ends in those.

        Raises `InProgress`, `RequestMismatch`, `ResponseNotStored`, `ReplayRefused` or `StoreUnavailable`; and
        `LeaseInTransaction` inside a transaction whose rollback the record would survive.
        """
        within = within or OpenedTransactions()
        if self._leases:
            refuse_open_transactions(but=self._record_alias, ours=within.blocks)
        block = within.on(self._record_alias)
        try:
            with nullcontext() if block is None else block.room(leases=self._leases):
                verdict = self.operation.open(wait=self._patience)
        except StoreUnavailable as error:
            self._go_without_store(error)
            return None
        return self._respond(verdict)

    async def aopen(self) -> HttpResponseBase | None:
        """See open()."""
        assert isinstance(self.operation, LeaseOperation)
        await arefuse_open_transactions(but=self._record_alias)
        try:
            verdict = await self.operation.aopen(wait=self._patience)
        except StoreUnavailable as error:
            await sync_to_async(self._go_without_store)(error)
            return None
        if isinstance(verdict, Replay):  # the project's function may query a database
            return await sync_to_async(self._respond)(verdict)
        return self._respond(verdict)

    @property
    def _patience(self) -> float:
        return self.policy.wait if self.policy.on_busy == "wait" else 0.0

    def _respond(self, verdict: Verdict) -> HttpResponseBase | None:
        match verdict:
            case Execute():
                self._mark()
                return None
            case Replay(outcome=outcome):
                self._authorize(outcome)
                assert self.operation.record is not None, "it holds what is replayed"
                original = self.operation.record.original_request
                note(self.request, HeaderStatus.REPLAYED, original=original)
                return rebuild(outcome, original=original)
            case refused:
                raise refusal_of(refused)

    def _authorize(self, outcome: Outcome) -> None:
        authorize = self.policy.authorize_replay
        if self._ask_again is not None:
            self._ask_again(authorized=authorize is not None)
        if authorize is not None and authorize(self.request, outcome) is not True:
            raise ReplayRefused

    def _go_without_store(self, error: StoreUnavailable) -> None:
        self._observer("unavailable", self.operation, error)
        if self.policy.on_store_failure == "closed":
            raise error
        self.degraded = True
        self._mark()

    def _mark(self) -> None:
        self._ask_again = None  # it holds the request
        setattr(self.request, GUARDED_BY, self)
        self.request.idempotency = self.handle  # type: ignore[attr-defined]
