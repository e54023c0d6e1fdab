"""Ends an exchange: writes what `ending` says, sets the headers, and leaves the request. Sync and async."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from django.db import connections
from django.http.response import HttpResponseBase

from ..contrib.screening.screening import Screening
from ..core.conclusions import SettledState, WorkResult
from ..core.concurrency.threads import in_thread
from ..errors import OperationUnknown, OutcomeUnknown, Problem, TransactionLost
from .admission import GUARDED_BY
from .ending import EndingExchange, refused_after_steps
from .raised import status_of
from .status import OF_RECORD, HeaderStatus, note, of_problem, set_headers

#: How a record is left whose request may come again.
RELEASED = (SettledState.FREE, SettledState.BOUND)


class RunningExchange(EndingExchange):
    """A keyed request whose view runs: `settle()` its response, or `fail()` if it raised."""

    #: What was asked about the request before its work, if anything.
    _screening: Screening | None = None

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
        status, original = self._note()
        set_headers(status, response, self._spoken, original=original)
        return response

    def _note(self) -> tuple[HeaderStatus, str]:
        """Note the status on the request. Return it, and the request's id."""
        status, original = self._status, self._original
        if (request := self._request()) is not None:
            note(request, status, original=original)
        return status, original

    @property
    def _original(self) -> str:
        """Return the id of this request, by which replays name it; "" if it has no record."""
        return "" if self.degraded else self.operation.ticket.original_request

    @property
    def _status(self) -> HeaderStatus:
        if self.degraded:
            return HeaderStatus.DEGRADED
        left_as, problem = self.operation.left_as, self.course.problem
        of_step = of_problem(problem) if problem is not None and left_as is SettledState.COMPLETED else None
        return of_step or OF_RECORD[left_as]

    def settle(self, response: HttpResponseBase) -> HttpResponseBase:
        """Store or drop the view's response, and return it. Raises what `Operation.settle` raises."""
        if self.degraded:
            self._leave()
            return self._stamp(response)
        try:
            ended, outcome = self._conclude(response)
            if ended is WorkResult.DROPPED and self.course.have_begun():
                ended, outcome = refused_after_steps(response)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self._fail(error)
        try:
            self.operation.settle(ended, outcome, ttl=self.handle.seconds)
            if self.operation.left_as is SettledState.COMPLETED:
                self.course.completed()
            elif self.operation.left_as is None and self.course.can_be_undone():
                raise OutcomeUnknown
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
            if ended is WorkResult.DROPPED and await self.course.ahave_begun():
                ended, outcome = refused_after_steps(response)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            await self._afail(error)
        try:
            await self.operation.asettle(ended, outcome, ttl=self.handle.seconds)
            if self.operation.left_as is SettledState.COMPLETED:
                await self.course.acompleted()
            elif self.operation.left_as is None and self.course.can_be_undone():
                raise OutcomeUnknown
        finally:
            self._leave()
            await self._aunscreen()
        return self._stamp(response)

    def fail(self, error: BaseException, *, committed: Callable[[], HttpResponseBase | None] = lambda: None) -> Problem:
        """End an exchange whose view raised, and raise: its exception, or a clearer one. Django makes a response of it.

        `committed` returns the view's response when only an `on_commit` callback failed: that is stored, unless it
        cannot be finished. Returns a problem to respond with instead if the view's writes could not be kept, or if it
        asked for a derived key that could not be derived again.
        """
        if self.degraded and isinstance(error, OperationUnknown):
            return self._stopped(error)
        if (left := self.course.left_by(error)) is not None:
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
        raise error

    async def afail(self, error: BaseException) -> Problem:
        """See fail()."""
        if self.degraded and isinstance(error, OperationUnknown):
            return self._stopped(error)
        if (left := await self.course.aleft_by(error)) is not None:
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
        raise error

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

    def _fail(self, error: BaseException) -> NoReturn:
        """End an exchange that has no response to store."""
        self._leave()
        if not self.degraded:
            self.operation.settle(*self._end_after(error))
            self._unscreen()
        self._note()
        raise error

    async def _afail(self, error: BaseException) -> NoReturn:
        """See _fail()."""
        self._leave()
        if not self.degraded:
            await self.operation.asettle(*self._end_after(error))
            await self._aunscreen()
        self._note()
        raise error
