"""How an exchange ends: what is stored of a response, and what an exception that leaves the view becomes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from datetime import datetime, timezone
from typing import NoReturn

from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..concurrency.threads import in_thread
from ..core import conclusions
from ..core.conclusions import SettledState, WorkResult
from ..core.failures import failed_with
from ..core.policy import Resolved
from ..core.records import Outcome
from ..engine.operation import Operation
from ..errors import OperationUnknown, Problem, TransactionLost, translate_django_error
from ..instrumentation.traces import traced
from ..runtime.registry import body_limit
from ..steps.endings import (
    acompleted,
    ahave_begun,
    aleft_by,
    completed,
    ending_by_steps,
    have_begun,
    is_unfinished,
    left_by,
    problem_of,
    runs_under,
)
from .admission import GUARDED_BY
from .atomic_requests import asks_for_transaction
from .handle import RequestIdempotency
from .raised import response_to, status_of
from .responses import capture, ending_of, render, wanted_by
from .screening import Screening
from .spoken import spoken_to
from .status import OF_RECORD, HeaderStatus, note, of_problem, set_headers

#: How a record is left whose request may come again.
RELEASED = (SettledState.FREE, SettledState.BOUND)


class RunningExchange:
    """A keyed request whose view runs: `settle()` its response, or `fail()` if it raised."""

    #: Did the store not respond, and the policy let the request run without a guard?
    degraded = False
    #: Set by an entry point that sees an exception only after it has become a response.
    raised: Exception | None = None
    #: What was asked about the request before its work, if anything.
    _screening: Screening | None = None

    def __init__(
        self, request: HttpRequest, policy: Resolved, operation: Operation, *, non_atomic: AbstractSet[str]
    ) -> None:
        # The request refers to us: a strong reference would keep it, and its uploads, until garbage collection.
        self._request = weakref.ref(request)
        self.policy = policy
        self.operation = operation
        self.handle = RequestIdempotency(operation)
        runs_under(self.handle, policy)
        self._spoken = spoken_to(request)
        self._max_body = body_limit(policy, operation.store)
        self._atomic_requests = asks_for_transaction(self._record_alias, non_atomic)

    @property
    def request(self) -> HttpRequest:
        """The request, which the caller of this exchange keeps alive."""
        request = self._request()
        assert request is not None
        return request

    @property
    def _record_alias(self) -> str | None:
        """Return the database whose open transaction the record joins."""
        return getattr(self.operation.store, "using", None)

    def _leave(self) -> None:
        """Detach from a finished request: if it is sent through the view again, it is guarded again."""
        request = self._request()
        if request is not None and getattr(request, GUARDED_BY, None) is self:
            delattr(request, GUARDED_BY)

    def _unscreen(self) -> None:
        """Forget the facts of a request that was refused or has failed."""
        if self._screening is not None and self.operation.left_as in RELEASED:
            self._screening.forget()

    async def _aunscreen(self) -> None:
        """See _unscreen()."""
        if self._screening is not None and self.operation.left_as in RELEASED:
            await in_thread(self._screening.forget)

    def _stamp(self, response: HttpResponseBase) -> HttpResponseBase:
        """Set the status header of the request, replacing one that its view has set."""
        self._note()
        set_headers(self._status, response, self._spoken, original=self._original)
        return response

    def _note(self) -> None:
        if (request := self._request()) is not None:
            note(request, self._status, original=self._original)

    @property
    def _original(self) -> str:
        """Return the id of this request, by which replays name it; "" if it has no record."""
        return "" if self.degraded else self.operation.ticket.original_request

    @property
    def _status(self) -> HeaderStatus:
        if self.degraded:
            return HeaderStatus.DEGRADED
        left_as, problem = self.operation.left_as, problem_of(self.handle)
        of_step = of_problem(problem) if problem is not None and left_as is SettledState.COMPLETED else None
        return of_step or OF_RECORD[left_as]

    def weigh(self, response: HttpResponseBase, *, refused: bool) -> None:
        """Decide whether to store a response below 500 whose body reports a failure that its status does not.

        `refused`: nothing was done. The view's own decision and the policy's `keep` come first.
        """
        if self.degraded or self.handle._ending is not None or response.status_code >= 500:  # noqa: SLF001
            return
        wanted = wanted_by(self.policy, response)
        if wanted is None:
            wanted = conclusions.keeps_reported_failure(refused=refused, needs_rollback=self.operation.needs_rollback())
        if wanted:
            self.handle.keep()
        else:
            self.handle.drop()

    def settle(self, response: HttpResponseBase) -> HttpResponseBase:
        """Store or drop the view's response, and return it. Raises what `Operation.settle` raises."""
        if self.degraded:
            self._leave()
            return self._stamp(response)
        try:
            ended, outcome = self._conclude(response)
            if ended is WorkResult.DROPPED and have_begun(self.handle):
                ended, outcome = _unfinished(response)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self._fail(error)
        try:
            self.operation.settle(ended, outcome, ttl=self.handle.seconds)
            if self.operation.left_as is SettledState.COMPLETED:
                completed(self.handle)
        finally:
            self._leave()
            self._unscreen()
        return self._stamp(response)

    async def asettle(self, response: HttpResponseBase) -> HttpResponseBase:
        """See settle()."""
        if self.degraded:
            self._leave()
            return self._stamp(response)
        try:
            # The project's function, a file and a sync stream may query a database, which an event loop refuses.
            asks = callable(self.policy.keep) or (response.streaming and not getattr(response, "is_async", False))
            ended, outcome = (
                await in_thread(self._conclude, response, close=connections.close_all)
                if asks
                else self._conclude(response)
            )
            if ended is WorkResult.DROPPED and await ahave_begun(self.handle):
                ended, outcome = _unfinished(response)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            await self._afail(error)
        try:
            await self.operation.asettle(ended, outcome, ttl=self.handle.seconds)
            if self.operation.left_as is SettledState.COMPLETED:
                await acompleted(self.handle)
        finally:
            self._leave()
            await self._aunscreen()
        return self._stamp(response)

    def _conclude(self, response: HttpResponseBase) -> tuple[WorkResult, Outcome | None]:
        decided = ending_by_steps(self.handle)
        if decided is not None and decided.is_held:
            self.handle.seconds = decided.ttl
            return decided.work_result, decided.outcome
        raised = self.raised is not None
        ending = conclusions.response_ending(response.status_code, raised=raised, atomic_requests=self._atomic_requests)
        if not ending.commit:
            self.operation.set_rollback()
        if decided is not None:
            # It has given up: this is its last word, unless it is a problem of ours, or an error page.
            has_answer = ending.answers and problem_of(self.handle) is None
            last = traced(capture(response, self.policy, self._max_body)) if has_answer else decided.outcome
            return decided.work_result, last
        if not ending.answers or is_unfinished(self.handle):
            return WorkResult.FAILED, _failure(self.raised, response.status_code)
        ended = self.handle._ending or ending_of(self.request, response, self.policy)  # noqa: SLF001
        if ended is WorkResult.FAILED:
            return ended, _failure(self.raised, response.status_code)
        return ended, traced(capture(response, self.policy, self._max_body)) if ended is WorkResult.KEPT else None

    def fail(self, error: BaseException, *, committed: Callable[[], HttpResponseBase | None] = lambda: None) -> Problem:
        """End an exchange whose view raised, and raise: its exception, or a clearer one. Django makes a response of it.

        `committed` returns the view's response when only an `on_commit` callback failed: that is stored, unless it
        cannot be finished. Returns a problem to respond with instead if the view's writes could not be kept, or if it
        asked for a derived key that could not be derived again.
        """
        if self.degraded and isinstance(error, OperationUnknown):
            return self._stopped(error)
        if (left := left_by(self.handle, error)) is not None:
            return self._fail_with(left)
        response, error = self._ended(error, committed)
        if response is None:
            try:
                self._fail(error)
            except TransactionLost as problem:
                return problem
        try:
            self.settle(response)
        except Problem as problem:
            return problem
        raise translate_django_error(error)

    async def afail(self, error: BaseException) -> Problem:
        """See fail()."""
        if self.degraded and isinstance(error, OperationUnknown):
            return self._stopped(error)
        if (left := await aleft_by(self.handle, error)) is not None:
            return await self._afail_with(left)
        # Its handler is the project's, and may query a database.
        known = isinstance(error, Exception) and status_of(error) is not None
        response, error = await in_thread(self._ended, error, close=connections.close_all) if known else (None, error)
        if response is None:
            await self._afail(error)
        try:
            await self.asettle(response)
        except Problem as problem:
            return problem
        raise translate_django_error(error)

    def _fail_with(self, problem: Problem) -> Problem:
        """End an exchange as its steps have decided, and return their problem."""
        try:
            self._fail(problem)
        except Problem as raised:
            return raised

    async def _afail_with(self, problem: Problem) -> Problem:
        """See _fail_with()."""
        try:
            await self._afail(problem)
        except Problem as raised:
            return raised

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
            if (response := committed()) is not None:
                render(response)
                return response, error
        except Exception as unfinished:  # noqa: BLE001 - mostly what had failed
            return None, unfinished if isinstance(error, Exception) else error
        if isinstance(error, Exception) and not self.degraded and (status := status_of(error)) is not None:
            # No query works in a transaction that is marked for rollback.
            response = None if self.operation.needs_rollback() else response_to(self.request, error, status)
            if response is not None and response.status_code < 500:
                self.raised = error
                return response, error
        return None, error

    def _fail(self, error: BaseException) -> NoReturn:
        """End an exchange that has no response to store."""
        self._leave()
        if not self.degraded:
            self.operation.settle(*self._end_after(error))
            self._unscreen()
        self._note()
        raise translate_django_error(error)

    def _end_after(self, error: BaseException) -> tuple[WorkResult, Outcome | None, float | None]:
        decided = ending_by_steps(self.handle) if isinstance(error, Exception) else None
        return decided or (*_failed(error), None)

    async def _afail(self, error: BaseException) -> NoReturn:
        """See _fail()."""
        self._leave()
        if not self.degraded:
            await self.operation.asettle(*self._end_after(error))
            await self._aunscreen()
        self._note()
        raise translate_django_error(error)


def _failed(error: BaseException) -> tuple[WorkResult, Outcome | None]:
    """Return how a view ends that raised, and what is noted of that. A cancelled one writes nothing."""
    if isinstance(error, Exception):
        return WorkResult.FAILED, _failure(error, 500)
    return WorkResult.CUT, None


def _unfinished(response: HttpResponseBase) -> tuple[WorkResult, Outcome]:
    """Return how a refusal ends behind steps. The key is not free for another body: a retry continues after the steps."""
    return WorkResult.FAILED, _failure(None, response.status_code)


def _failure(error: Exception | None, status: int) -> Outcome:
    return failed_with(error, at=datetime.now(timezone.utc), status=status)
