"""One HTTP exchange under a key: the steps that all entry points share, in order.

An entry point decides *where* the guard is. Everything else is here: what is checked, what is refused, what is stored.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from enum import Enum
from typing import Any, Literal, NoReturn

from asgiref.sync import sync_to_async
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.encoding import escape_uri_path

from ..concurrency.threads import in_thread
from ..core.policy import SAFE_METHODS, Policy, Resolved
from ..core.records import Guarantee, Outcome
from ..core.rules import RAISED, Busy, Execute, Mismatch, Replay, Unreadable, Verdict, WorkResult
from ..engine.atomic import AtomicOperation
from ..engine.lease import LeaseOperation
from ..engine.operation import Operation
from ..errors import (
    InProgress,
    KeyMissing,
    OperationUnknown,
    Problem,
    RecordUnreadable,
    ReplayRefused,
    RequestMismatch,
    ScopeRequired,
    StoreUnavailable,
    TransactionLost,
    translate_django_error,
)
from ..instrumentation.observer import Observer
from ..runtime import switch
from ..runtime.registry import body_limit, store_of
from ..runtime.tickets import issue
from ..runtime.transactions import arefuse_open_transactions, refuse_open_transactions
from .atomic_requests import OpenedTransactions, asks_for_transaction
from .facts import facts_of
from .fingerprint import fingerprint
from .handle import RequestIdempotency, switch_off
from .keys import scope_of
from .raised import response_to, status_of
from .responses import capture, ending_of, rebuild, render
from .selection import Document, selected_key
from .status import OF_RECORD, HeaderStatus, note, say
from .unguarded import METHOD, NOBODY, leave_unguarded

_ATTRIBUTE = "_idempotency_exchange"


class Where(Enum):
    """Where the key is, if not in the header."""

    PAYLOAD = "payload"


Key = str | Literal[Where.PAYLOAD]


def key_to_guard(request: HttpRequest, policy: Policy) -> Key | None:
    """Return the key to guard a request under, or `None` to let it run; cheap when there is none.

    `Where.PAYLOAD`: the policy selects it, which may read the body and is left to `Exchange.of()`. `None` for a safe
    method, a method outside the policy, a request that an outer guard covers, no key, and while idempotency is off.
    Raises `KeyMissing` and `KeyMalformed`.
    """
    if request.method in SAFE_METHODS or is_guarded(request):
        return None
    facts = facts_of(request)
    if not facts.asks_for_guard(policy):
        return None
    if not facts.is_guarded_method(policy):
        if facts.carries_key:
            leave_unguarded(request, METHOD)
        return None
    if not switch.enabled():
        switch_off(request, policy)
        return None
    if (key := facts.read_key()) is not None:
        return key
    if facts.may_have_key(policy):
        return Where.PAYLOAD
    raise KeyMissing


def is_guarded(request: HttpRequest) -> bool:
    """Does an outer entry point guard this request now?"""
    return hasattr(request, _ATTRIBUTE)


def exchange_of(request: HttpRequest) -> Exchange | None:
    """Return the exchange that guards a request now."""
    return getattr(request, _ATTRIBUTE, None)


class Exchange:
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
        # The request refers to us: a strong reference would keep it, and its uploads, until garbage collection.
        self._request = weakref.ref(request)
        self.policy = policy
        self._ask_again = ask_again
        self._observer = Observer(request)
        self.degraded = False
        #: Set by an entry point that sees an exception only after it has become a response.
        self.raised: Exception | None = None
        store = store_of(policy)
        self._max_body = body_limit(policy, store)
        digest = fingerprint(document.source, policy, document)
        ticket = issue(
            policy,
            scope=scope,
            key=key,
            digest=digest,
            method=request.method or "",
            path=escape_uri_path(request.path),
        )
        self.operation: Operation
        if policy.guarantee is Guarantee.LEASE:
            hold_failures = policy.on_failure == "hold"
            self.operation = LeaseOperation(store, ticket, self._observer, hold_failures=hold_failures)
        else:
            self.operation = AtomicOperation(store, ticket, self._observer)
        self.handle = RequestIdempotency(self.operation)
        self._atomic_requests = asks_for_transaction(self._record_alias, non_atomic)

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
        """Return the exchange of a keyed request. For a key without a principal: `None`, or if `strict` `ScopeRequired`.

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
    def request(self) -> HttpRequest:
        """The request, which the caller of this exchange keeps alive."""
        request = self._request()
        assert request is not None
        return request

    @property
    def atomic_alias(self) -> str | None:
        """Return the database of the guard's transaction while the view runs."""
        if self.degraded or self._leases:
            return None
        return self._record_alias

    @property
    def _leases(self) -> bool:
        return self.operation.ticket.guarantee is Guarantee.LEASE

    @property
    def _record_alias(self) -> str | None:
        """Return the database whose open transaction the record joins."""
        return getattr(self.operation.store, "using", None)

    # --------------------------------------------------------------------------------------------------------- open

    def open(self, within: OpenedTransactions | None = None) -> HttpResponseBase | None:
        """Return the response to send instead of the view's, or `None`: run the view.

        `within` are the transactions of ATOMIC_REQUESTS, which the caller ends before settle() or fail(). The one on the
        record's database is taken over, and ends in those.

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
        return self._answer(verdict)

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
            return await sync_to_async(self._answer)(verdict)
        return self._answer(verdict)

    @property
    def _patience(self) -> float:
        return self.policy.wait if self.policy.on_busy == "wait" else 0.0

    def _answer(self, verdict: Verdict) -> HttpResponseBase | None:
        match verdict:
            case Execute():
                self._mark()
                return None
            case Replay(outcome=outcome):
                self._authorize(outcome)
                note(self.request, HeaderStatus.REPLAYED)
                return rebuild(outcome)
            case Busy(retry_after=retry_after):
                raise InProgress(headers={"Retry-After": str(retry_after)})
            case Mismatch():
                raise RequestMismatch
            case Unreadable():
                raise RecordUnreadable

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
        setattr(self.request, _ATTRIBUTE, self)
        self.request.idempotency = self.handle  # type: ignore[attr-defined]

    # ------------------------------------------------------------------------------------------------------- settle

    def _leave(self) -> None:
        """Detach from a finished request: if it is sent through the view again, it is guarded again."""
        request = self._request()
        if request is not None and getattr(request, _ATTRIBUTE, None) is self:
            delattr(request, _ATTRIBUTE)

    def _say(self, response: HttpResponseBase) -> HttpResponseBase:
        """Set the status header of the request, replacing one that its view has set."""
        self._note()
        say(self._status, response)
        return response

    def _note(self) -> None:
        if (request := self._request()) is not None:
            note(request, self._status)

    @property
    def _status(self) -> HeaderStatus:
        return HeaderStatus.DEGRADED if self.degraded else OF_RECORD[self.operation.left_as]

    def weigh(self, response: HttpResponseBase, *, refused: bool) -> None:
        """Decide whether to store a response below 500 whose body reports a failure that its status does not.

        `refused`: nothing was done. The view's own decision and the policy's `keep` come first. Partly done work is
        stored, since a retry would repeat that part, unless it will be rolled back.
        """
        keep = self.policy.keep
        if self.degraded or self.handle._ending is not None or response.status_code >= 500:  # noqa: SLF001
            return
        wanted = keep(response) if callable(keep) else (keep is not None and response.status_code in keep) or None
        if wanted is None:
            wanted = not refused and not self.operation.needs_rollback()
        if wanted:
            self.handle.keep()
        else:
            self.handle.drop()

    def settle(self, response: HttpResponseBase) -> HttpResponseBase:
        """Store or drop the view's response, and return it. Raises what `Operation.settle` raises."""
        if self.degraded:
            self._leave()
            return self._say(response)
        try:
            ended, outcome = self._conclude(response)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self._fail(error)
        try:
            self.operation.settle(ended, outcome, ttl=self.handle.seconds)
        finally:
            self._leave()
        return self._say(response)

    async def asettle(self, response: HttpResponseBase) -> HttpResponseBase:
        """See settle()."""
        if self.degraded:
            self._leave()
            return self._say(response)
        try:
            # The project's function, a file and a sync stream may query a database, which an event loop refuses.
            asks = callable(self.policy.keep) or (response.streaming and not getattr(response, "is_async", False))
            ended, outcome = (
                await in_thread(self._conclude, response, close=connections.close_all)
                if asks
                else self._conclude(response)
            )
        except BaseException as error:  # noqa: BLE001 - it is raised again
            await self._afail(error)
        try:
            await self.operation.asettle(ended, outcome, ttl=self.handle.seconds)
        finally:
            self._leave()
        return self._say(response)

    def _conclude(self, response: HttpResponseBase) -> tuple[WorkResult, Outcome | None]:
        if self.raised is not None:
            raised = RAISED[response.status_code < 500, self._atomic_requests]
            if not raised.commit:
                self.operation.set_rollback()
            if not raised.answers:
                return WorkResult.FAILED, None
        if response.status_code >= 500:
            self.operation.set_rollback()  # even when the view keeps its 5xx: its writes are rolled back
        ended = self.handle._ending or ending_of(self.request, response, self.policy)  # noqa: SLF001
        return ended, capture(response, self.policy, self._max_body) if ended is WorkResult.KEPT else None

    def fail(self, error: BaseException, *, committed: Callable[[], HttpResponseBase | None] = lambda: None) -> Problem:
        """End an exchange whose view raised, and raise: its exception, or a clearer one. Django makes a response of it.

        `committed` returns the view's response when only an `on_commit` callback failed: that is stored, unless it
        cannot be finished. Returns a problem to respond with instead if the view's writes could not be kept, or if it
        asked for a derived key that could not be derived again.
        """
        if self.degraded and isinstance(error, OperationUnknown):
            return self._stopped(error)
        answer, error = self._ended(error, committed)
        if answer is None:
            try:
                self._fail(error)
            except TransactionLost as problem:
                return problem
        try:
            self.settle(answer)
        except Problem as problem:
            return problem
        raise translate_django_error(error)

    async def afail(self, error: BaseException) -> Problem:
        """See fail()."""
        if self.degraded and isinstance(error, OperationUnknown):
            return self._stopped(error)
        # Its handler is the project's, and may query a database.
        known = isinstance(error, Exception) and status_of(error) is not None
        answer, error = await in_thread(self._ended, error, close=connections.close_all) if known else (None, error)
        if answer is None:
            await self._afail(error)
        try:
            await self.asettle(answer)
        except Problem as problem:
            return problem
        raise translate_django_error(error)

    def _stopped(self, problem: OperationUnknown) -> Problem:
        """End an exchange without a record, and return the view's problem."""
        self._leave()
        self._note()
        return problem

    def _ended(
        self, error: BaseException, committed: Callable[[], HttpResponseBase | None] = lambda: None
    ) -> tuple[HttpResponseBase | None, BaseException]:
        """Return the response that ends a view which raised, or `None` for a failure; and what to raise."""
        try:
            if (answer := committed()) is not None:
                render(answer)
                return answer, error
        except Exception as unfinished:  # noqa: BLE001 - mostly what had failed
            return None, unfinished if isinstance(error, Exception) else error
        if isinstance(error, Exception) and not self.degraded and (status := status_of(error)) is not None:
            # No query works in a transaction that is marked for rollback.
            answer = None if self.operation.needs_rollback() else response_to(self.request, error, status)
            if answer is not None and answer.status_code < 500:
                self.raised = error
                return answer, error
        return None, error

    def _fail(self, error: BaseException) -> NoReturn:
        """End an exchange that has no response to store."""
        self._leave()
        if not self.degraded:
            self.operation.settle(WorkResult.FAILED if isinstance(error, Exception) else WorkResult.CUT)
        self._note()
        raise translate_django_error(error)

    async def _afail(self, error: BaseException) -> NoReturn:
        """See _fail()."""
        self._leave()
        if not self.degraded:
            await self.operation.asettle(WorkResult.FAILED if isinstance(error, Exception) else WorkResult.CUT)
        self._note()
        raise translate_django_error(error)
