"""One HTTP exchange under a key: the steps that all entry points share, in order.

An entry point decides *where* the guard is. The rest is here: what is checked and what is refused; in `ending`: what is
stored; and in `settling`, which writes that.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..contrib.observe.observing import watch
from ..contrib.screening.screening import screening_of
from ..core.conclusions import WorkResult
from ..core.concurrency.cancellation import run_to_completion
from ..core.policy import OBSERVE, Resolved
from ..core.records import Guarantee
from ..core.rules import Execute, Replay, Verdict
from ..engine.atomic import AtomicOperation
from ..engine.lease import LeaseOperation
from ..engine.operation import Operation
from ..errors import ConfigurationError, StoreUnavailable
from ..instrumentation.counting import outcome_of_verdict
from ..instrumentation.observer import Observer
from ..instrumentation.outcomes import DEGRADED
from ..runtime.registry import store_of
from ..runtime.transactions import arefuse_open_transactions, refuse_open_transactions
from ..stores.blocks import Block
from . import counting
from .admission import GUARDED_BY
from .atomic_requests import OpenedTransactions
from .deciding import DecidingExchange
from .identity import Identity, Key, identify
from .problems import refusal_of
from .references import note_operation
from .responses import rebuild, render
from .status import HeaderStatus, note, set_headers
from .takeovers import Finish


def exchange_of(request: HttpRequest) -> Exchange | None:
    """Return the exchange that guards a request now."""
    return getattr(request, GUARDED_BY, None)


class Exchange(DecidingExchange):
    """A request with a key: `open()` it, and if that returns no response, run the view and `settle()` or `fail()`."""

    def __init__(
        self,
        request: HttpRequest,
        policy: Resolved,
        *,
        identity: Identity,
        non_atomic: AbstractSet[str] = frozenset(),
        ask_again: Callable[..., None] | None = None,
        finish: Finish | None = None,
        by_middleware: bool = False,
    ) -> None:
        self._ask_again = ask_again
        #: Does the middleware guard a view that knows nothing of keys?
        self.by_middleware = by_middleware
        self._finish = finish
        self._observer = Observer(request, source=counting.source_of(request))
        store, ticket = store_of(policy), identity.ticket(policy)
        operation: Operation
        if policy.guarantee is Guarantee.LEASE:
            hold_failures = policy.on_failure == "hold"
            operation = LeaseOperation(store, ticket, self._observer, hold_failures=hold_failures)
        else:
            operation = AtomicOperation(store, ticket, self._observer)
        note_operation(request, ticket.id, operation)
        super().__init__(request, policy, operation, non_atomic=non_atomic)
        self._screening = screening_of(policy, identity.document, ticket)

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
        finish: Finish | None = None,
    ) -> Exchange | None:
        """Return the exchange of a keyed request, or `None` if it runs unguarded: see `identify()`, also for `source`.

        `None`, too, under a policy that only observes. `non_atomic` are the databases that the view excludes from
        ATOMIC_REQUESTS. `ask_again` repeats the view's access checks before a replay. `finish` completes a response that
        `on_takeover` has found, as the view would.
        """
        if policy.mode == OBSERVE:
            watch(request, policy, key=key, user=user, source=source, strict=strict)
            return None
        identity = identify(request, policy, key=key, user=user, source=source, strict=strict)
        if identity is None:
            return None
        return cls(
            request,
            policy,
            identity=identity,
            non_atomic=non_atomic,
            ask_again=ask_again,
            finish=finish,
            by_middleware=not strict,
        )

    @property
    def atomic_alias(self) -> str | None:
        """Return the database of the guard's transaction while the view runs."""
        if self.degraded or self._leases:
            return None
        return self._record_alias

    # --------------------------------------------------------------------------------------------------------- open

    def open(self, within: OpenedTransactions | None = None) -> HttpResponseBase | None:
        """Return the response to send instead of the view's, or `None`: run the view.

        `within` are the transactions of ATOMIC_REQUESTS, which the caller ends before settle() or fail(). The one on
        the record's database is taken over, and ends in those.

        Raises `InProgress`, `RequestMismatch`, `ResponseNotStored`, `OperationHeld`, `ReplayRefused` or
        `StoreUnavailable`; `LeaseInTransaction` inside a transaction whose rollback the record would survive; and what
        `on_replay` and `on_takeover` raise.
        """
        within = within or OpenedTransactions()
        if self._screening is not None:
            self._refuse_flood(self._screening)
        if self._leases:
            refuse_open_transactions(but=self._record_alias, ours=within.blocks)
        block = within.on(self._record_alias)
        try:
            with self._room(block):
                verdict = self.operation.open(wait=self._patience)
        except StoreUnavailable as error:
            self._go_without_store(error)
            return None
        if (takeover := self._takeover(verdict)) is not None and (end := self._decide(takeover)) is not None:
            self.operation.settle(WorkResult.KEPT, end.outcome, ttl=end.ttl)
            return self._conclude_takeover(end)
        if self._screening is not None and isinstance(verdict, Execute):
            self._screen(self._screening, verdict)
        return self._respond(verdict)

    def _room(self, block: Block | None) -> AbstractContextManager[None]:
        """Return the context of the claim, in which the guard learns what it takes over."""
        return nullcontext() if block is None else block.room(leases=self._leases)

    async def aopen(self) -> HttpResponseBase | None:
        """See open()."""
        assert isinstance(self.operation, LeaseOperation)
        await arefuse_open_transactions(but=self._record_alias)
        if self._screening is not None:
            await self._arefuse_flood(self._screening)
        try:
            verdict = await self.operation.aopen(wait=self._patience)
        except StoreUnavailable as error:
            await sync_to_async(self._go_without_store)(error)
            return None
        if (takeover := self._takeover(verdict)) is not None and (end := await self._adecide(takeover)) is not None:
            await run_to_completion(self.operation.asettle(WorkResult.KEPT, end.outcome, ttl=end.ttl))
            return await sync_to_async(self._conclude_takeover)(end)
        if self._screening is not None and isinstance(verdict, Execute):
            await self._ascreen(self._screening, verdict)
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
                self._count(outcome_of_verdict(verdict, self.operation))
                return None
            case Replay(outcome=outcome):
                self._authorize(outcome)
                assert self.operation.record is not None, "it holds what is replayed"
                original = self.operation.record.original_request
                stored = rebuild(outcome, spoken=self._spoken, original=original)
                self._count(outcome_of_verdict(verdict, self.operation))  # also if on_replay raises
                response = self._current(stored, original)
                note(self.request, HeaderStatus.REPLAYED, original=original)
                return response
            case refused:
                raise refusal_of(refused)

    def _current(self, stored: HttpResponseBase, original: str) -> HttpResponseBase:
        """Return what `on_replay` makes of a stored response, marked as that one is."""
        hook = self.policy.on_replay
        if hook is None or (response := hook(self.request, stored)) is stored:
            return stored
        if not isinstance(response, HttpResponseBase):
            raise ConfigurationError(
                f"on_replay returned {response!r}. Return the response that it gets, or another one."
            )
        if self._finish is not None:
            response = self._finish(response)
        render(response)
        set_headers(HeaderStatus.REPLAYED, response, self._spoken, original=original)
        return response

    def _go_without_store(self, error: StoreUnavailable) -> None:
        self._observer("unavailable", self.operation, error)
        if self.policy.on_store_failure == "closed":
            raise error
        self.degraded = True
        self._mark()
        self._count(DEGRADED)

    def _mark(self) -> None:
        self._ask_again = self._finish = None  # they hold the request
        setattr(self.request, GUARDED_BY, self)
        self.request.idempotency = self.handle  # type: ignore[attr-defined]
