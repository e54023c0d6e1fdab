"""One keyed request: `open()` it, and if that returns no response, run the view and `settle()` or
`fail()`.

An entry point decides *where* the guard is. All else is here, once for all of them: what is checked
and refused before the view, how a view ends that has responded or raised, and what is written of
that.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NoReturn, cast

from asgiref.sync import sync_to_async
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from ..core import conclusions
from ..core.conclusions import Ending, SettledState, WorkResult
from ..core.concurrency import nothing, run_to_completion
from ..core.failures import failed_with
from ..core.policy import Resolved
from ..core.records import MISSING, Outcome, OutcomeKind, Ticket, kind_of
from ..core.rules import Execute, Replay, Verdict, original_request
from ..core.statuses import OF_RECORD, HeaderStatus, Moment
from ..core.statuses import status_of as status_of_problem
from ..engine import threads
from ..engine.deadlines import time_for
from ..engine.operation import AtomicOperation, Operation
from ..errors import (
    ConfigurationError,
    OperationHeld,
    OperationUnknown,
    OutcomeUnknown,
    Problem,
    ReplayRefused,
    StoreUnavailable,
    TransactionLost,
)
from ..instrumentation.meters import meters
from ..instrumentation.observer import Observer
from ..instrumentation.outcomes import DEGRADED, outcome_of_verdict, traced
from ..runtime.handle import Course
from ..runtime.transactions import (
    arefuse_open_transactions,
    refuse_left_open,
    refuse_open_transactions,
)
from ..runtime.wings import Listener
from ..stores.lending import in_database_thread
from . import counting
from .atomic_requests import NONE_OPENED, OpenedTransactions, asks_for_transaction
from .exchange import Exchange, RequestIdempotency, set_headers
from .plan import Plan
from .problems import refusal_of
from .responses import (
    capture,
    describe_bytes,
    rebuild,
    render,
    report_not_stored,
    response_to,
    status_of,
    wanted_by,
)

if TYPE_CHECKING:
    from ..engine.lease import LeaseOperation

logger = logging.getLogger("django_idempotency")

Committed = Callable[[], HttpResponseBase | None]
#: Completes a response as the view would, before it is rendered.
Finish = Callable[[Any], HttpResponseBase]


def _nothing_committed() -> None:
    """An exception of the view came before any COMMIT."""


class Call:
    """A request with a key, under its plan."""

    #: Did the store not respond, and the policy let the request run without a guard?
    degraded = False
    #: Set by an entry point that sees an exception only after it has become a response.
    raised: Exception | None = None
    #: The id of this request, by which replays name it if it runs; "": it has no record.
    original = ""
    #: What the view sees as `request.idempotency`, once it runs.
    handle: RequestIdempotency
    #: The transactions of ATOMIC_REQUESTS around the view, but for the guard's own.
    within: OpenedTransactions = NONE_OPENED
    #: Does the response say that nothing was done, whatever its status is?
    reports_failure = False
    #: Is it a refusal of work that has written nothing?
    did_nothing = False
    #: Must a person decide, whatever the view has responded?
    _is_held = False
    _course: Course | None = None

    def __init__(
        self,
        request: HttpRequest,
        plan: Plan,
        ticket: Ticket,
        exchange: Exchange,
        *,
        non_atomic: AbstractSet[str] = frozenset(),
        ask_again: Callable[..., None] | None = None,
        finish: Finish | None = None,
        listeners: Sequence[Listener] = (),
        by_middleware: bool = False,
        refuses: Callable[[], bool] | None = None,
        selected: bool = False,
    ) -> None:
        """Raises what the settings raise.

        `non_atomic` are the databases that the view excludes from ATOMIC_REQUESTS. `ask_again`
        repeats the view's access checks before a replay, and `refuses` asks whether what stands
        before the view would refuse the request. `finish` completes a response that `on_takeover`
        has found, as the view would. `selected`: has the project chosen the key from the payload?
        """
        # The request refers to us: a strong reference would keep it, and its uploads, until garbage
        # collection.
        self._request = weakref.ref(request)
        self.plan, self.terms, self._takeovers = plan, plan.terms, plan.takeovers
        self._ask_again, self.finish = ask_again, finish
        #: Does the middleware guard a view that knows nothing of keys?
        self.by_middleware = by_middleware
        self.exchange = exchange
        self._observer = Observer(request, source=exchange.source, counter=plan.counter)
        if plan.leases:
            # Not above: its threads and retries are for leases only.
            from ..engine.lease import (
                LeaseOperation,
            )

            operates: type[Operation] = LeaseOperation
        else:
            operates = AtomicOperation
        self.operation = operates(
            plan.store, ticket, self._observer, on_failure=self.terms.on_failure
        )
        #: Does what the work has written decide whether a refusal is remembered?
        self._weighs = (selected or self.terms.keep is not None) and conclusions.weighs_writes(
            self.terms.keep, leases=plan.leases, selected=selected, remembers=plan.profile.remembers
        )
        self._refuses = None if plan.leases else refuses
        if self._weighs or self._refuses is not None or self.terms.suspect is not None:
            self.operation.counts_writes = True
        exchange.record, exchange.operation = ticket.id, self.operation
        assert exchange.spoken is not None, "its key was read"
        self.spoken = exchange.spoken
        self._handle = plan.handle  # before the claim: an app may raise
        #: The database whose open transaction the record joins, and that of the guard's transaction
        #: while the view runs.
        self._alias = plan.store.using
        self.atomic_alias = None if plan.leases else self._alias
        self._non_atomic, self._listeners = non_atomic, listeners

    @property
    def request(self) -> HttpRequest:
        """The request, which the caller of this call keeps alive."""
        request = self._request()
        assert request is not None
        return request

    @property
    def course(self) -> Course:
        """What decides how the work ends, besides its response."""
        if self._course is None:
            self._course = self.handle._course(self.handle)  # noqa: SLF001 - ours
        return self._course

    # ----------------------------------------------------------------------------------------- open

    def open(self, within: OpenedTransactions = NONE_OPENED) -> HttpResponseBase | None:
        """Return the response to send instead of the view's, or `None`: run the view.

        `within` are the transactions of ATOMIC_REQUESTS, which the caller ends before settle() or
        fail(). The one on the record's database is taken over, and ends in those.

        Raises `InProgress`, `RequestMismatch`, `ResponseNotStored`, `OperationHeld`,
        `ReplayRefused` or `StoreUnavailable`; `DeadlinePassed`; `LeaseInTransaction` inside a
        transaction whose rollback the record would survive; and what listeners, `on_replay` and
        `on_takeover` raise.
        """
        self.within = within
        if within.blocks:
            within.guard()
        for each in self._listeners:
            each.arrived(self)
        try:
            verdict = self._claim(within)
        except StoreUnavailable as error:
            self._go_without_store(error)
            return None
        if isinstance(verdict, Replay):
            return self._replay(verdict)
        if not isinstance(verdict, Execute):
            raise refusal_of(verdict)
        if verdict.takeover and self._takeovers is not None:
            found: HttpResponseBase | None = self._takeovers.decide(self)
            if found is not None:
                return found
        if self._listeners:
            self._screen(verdict)
        self._begin(verdict)
        return None

    async def aopen(self, within: OpenedTransactions = NONE_OPENED) -> HttpResponseBase | None:
        """See open()."""
        self.within = within
        if within.blocks:
            within.guard()
        for each in self._listeners:
            await in_database_thread(each.arrived, self)
        try:
            verdict = await self._aclaim(within)
        except StoreUnavailable as error:
            await in_database_thread(self._go_without_store, error)
            return None
        if isinstance(verdict, Replay):
            return await sync_to_async(self._replay)(verdict)
        if not isinstance(verdict, Execute):
            raise refusal_of(verdict)
        if verdict.takeover and self._takeovers is not None:
            found: HttpResponseBase | None = await self._takeovers.adecide(self)
            if found is not None:
                return found
        if self._listeners:
            await self._ascreen(verdict)
        self._begin(verdict)
        return None

    def _claim(self, within: OpenedTransactions) -> Verdict:
        """Claim the key, as far as the transactions that are open allow it."""
        leases = self.plan.leases
        if leases:
            refuse_open_transactions(but=self._alias, ours=within.blocks)
        with self.room() if within.blocks else nullcontext():
            return self.operation.open(wait=self.plan.patience)

    def room(self) -> AbstractContextManager[None]:
        """Return the context in which a record may be settled although the request's transaction is
        open.
        """
        block = self.within.on(self._alias) if self.within.blocks else None
        return nullcontext() if block is None else block.room(leases=self.plan.leases)

    async def _aclaim(self, within: OpenedTransactions) -> Verdict:
        """See _claim(). Async code holds no transaction."""
        await arefuse_open_transactions(but=self._alias)
        return await threads.aopen(self.operation, wait=self.plan.patience)

    def _screen(self, run: Execute) -> None:
        """Let the listeners look at a claim.

        What one raises ends it, as the listener has settled it or not at all.
        """
        for each in self._listeners:
            try:
                each.claimed(self, run)
            except BaseException as error:
                if self.operation.left_as is None:  # interrupted
                    self.abandon(error, each.forget)
                raise

    async def _ascreen(self, run: Execute) -> None:
        """See _screen()."""
        for each in self._listeners:
            try:
                await run_to_completion(in_database_thread(each.claimed, self, run))
            except BaseException as error:
                if self.operation.left_as is None:  # interrupted
                    await self.aabandon(error, each.forget)
                raise

    def abandon(self, error: BaseException, forget: Callable[[], None] = nothing) -> None:
        """Restore the record of a claim that an error ends before the view, and `forget` it."""
        self.operation.abandon()
        forget()
        self.exchange.status, self.exchange.original = HeaderStatus.REFUSED, ""

    async def aabandon(self, error: BaseException, forget: Callable[[], None] = nothing) -> None:
        """See abandon()."""
        if isinstance(error, GeneratorExit):  # nothing can be awaited any more
            self.abandon(error, forget)
            return
        await threads.aabandon(self.operation)
        await run_to_completion(in_database_thread(forget))
        self.exchange.status, self.exchange.original = HeaderStatus.REFUSED, ""

    def _begin(self, run: Execute | None) -> None:
        """Let the view run: it sees its operation. `None`: without its store."""
        self._ask_again = self.finish = None  # they hold the request
        if run is not None:
            self.original = original_request(self.operation.ticket)
        request: Any = self._request()
        request.idempotency = self.handle = self._handle(self.operation, self.terms, self.exchange)
        self.exchange.call, self.exchange.has_begun = self, True
        if meters.active:
            self.count(DEGRADED if run is None else outcome_of_verdict(run, self.operation))

    def _replay(self, verdict: Replay) -> HttpResponseBase:
        """Return the stored response. What the project is asked for it may query a database."""
        if self._ask_again is not None or self.terms.authorize_replay is not None:
            self.authorize(verdict.outcome)
        assert self.operation.record is not None, "it holds what is replayed"
        original = original_request(self.operation.record)
        stored = rebuild(verdict.outcome, spoken=self.spoken, original=original)
        if meters.active:
            self.count(outcome_of_verdict(verdict, self.operation))  # also if on_replay raises
        response: HttpResponseBase = (
            stored
            if self.terms.on_replay is None
            else self._current(stored, verdict.outcome, original)
        )
        exchange = self.exchange
        exchange.status, exchange.original, exchange.stamped = (
            HeaderStatus.REPLAYED,
            original,
            weakref.ref(response),
        )
        return response

    def _current(self, stored: HttpResponse, outcome: Outcome, original: str) -> HttpResponseBase:
        """Return what `on_replay` makes of a stored response, marked as that one is."""
        assert self.terms.on_replay is not None, "see _replay()"
        current: object = self.terms.on_replay(self.request, stored)
        if current is stored:
            describe_bytes(stored, outcome)
            return stored
        if not isinstance(current, HttpResponseBase):
            raise ConfigurationError(
                f"on_replay returned {current!r}. Return the response that it gets, or another one."
            )
        response = current if self.finish is None else self.finish(current)
        render(response)
        set_headers(
            HeaderStatus.REPLAYED,
            response.headers,
            self.spoken,
            response.status_code,
            original=original,
        )
        return response

    def authorize(self, outcome: Outcome) -> None:
        authorize = self.terms.authorize_replay
        if self._ask_again is not None:
            self._ask_again(authorized=authorize is not None)
        if authorize is not None and authorize(self.request, outcome) is not True:
            raise ReplayRefused

    def _go_without_store(self, error: StoreUnavailable) -> None:
        self._observer("unavailable", self.operation, error)
        if self.terms.on_store_failure == "closed":
            raise error
        time_for(0)  # the store may have taken longer than the host has
        self.degraded, self.atomic_alias = True, None
        self._begin(None)

    def count(self, outcome: str | None) -> None:
        if outcome is not None:
            counting.count(self.request, outcome, self.operation)

    # ---------------------------------------------------------------------------- how the view ends

    def weigh(self, response: HttpResponseBase, *, has_begun: bool, reports_failure: bool) -> None:
        """Decide whether to store a response below 500 whose status does not say if its work has
        begun.

        The view's own decision and the policy's `keep` come first. `reports_failure`: does its body
        say that nothing was done?
        """
        self.reports_failure = reports_failure
        if self.degraded or self.handle._ending is not None or response.status_code >= 500:  # noqa: SLF001
            return
        wanted = wanted_by(self.terms, response)
        if wanted is None:
            wanted = conclusions.keeps_begun(
                has_begun=has_begun, needs_rollback=self.operation.needs_rollback()
            )
        if wanted:
            self.handle.keep()
        else:
            self.handle.drop()

    def discard(self) -> None:
        """Let the response be no success, whatever it says: what the view wrote is rolled back."""
        self.handle._ending = WorkResult.FAILED  # noqa: SLF001 - ours

    def _conclude(self, response: HttpResponseBase) -> tuple[WorkResult, Outcome | None, bool]:
        """Return how a view ends that responded, what is stored of its response, and whether that
        says that it succeeded.
        """
        status, raised, ended = response.status_code, self.raised is not None, WorkResult.FAILED
        steered = self.plan.has_course or self.handle.is_held
        decided = self.course.decided() if steered else None
        if decided is None:
            ended = self.handle._ending or ending_of(response, self.terms)  # noqa: SLF001 - ours
        elif decided.is_final:
            self.handle.seconds = decided.ttl
            self._is_held = kind_of(decided.outcome) is OutcomeKind.HELD
            return decided.work_result, decided.outcome, False
        rolls_back = raised and asks_for_transaction(self._alias, self._non_atomic)
        ending = conclusions.response_ending(status, raised=raised, atomic_requests=rolls_back)
        if not ending.commit:
            self.operation.set_rollback()
        if decided is not None:
            # It has given up: this is its last word, unless it is a problem of ours, or an error
            # page.
            has_answer = ending.answers and self.course.problem is None
            return (
                decided.work_result,
                self._captured(response) if has_answer else decided.outcome,
                False,
            )
        if (
            not ending.answers
            or (steered and self.course.is_unfinished())
            or ended is WorkResult.FAILED
        ):
            return WorkResult.FAILED, _failure(self.raised, status), False
        if self.operation.counts_writes:
            ended = self._weighed(ended, response)
        succeeded = status < 400 and not self.reports_failure
        if succeeded and self.plan.leases:
            refuse_left_open(cast("LeaseOperation", self.operation), but=self._alias)
        stored = self._captured(response) if ended is WorkResult.KEPT else None
        return ended, stored, succeeded

    def _weighed(self, ended: WorkResult, response: HttpResponseBase) -> WorkResult:
        """Return how a view ends, by what it has written where that decides.

        The view's own word comes first.
        """
        status = response.status_code
        refusal = conclusions.is_refusal(status)
        asks = refusal or (self._refuses is not None and 300 <= status < 400)
        if self.handle._ending is not None or not asks:  # noqa: SLF001 - ours
            return ended
        wrote = self.operation.wrote()
        self.did_nothing = refusal and not wrote
        if self._weighs and refusal and "WWW-Authenticate" not in response.headers:
            return conclusions.refusal_ending(status, wrote=wrote)
        if ended is WorkResult.KEPT and not wrote and self._was_refused_before():
            return WorkResult.DROPPED
        return ended

    def _was_refused_before(self) -> bool:
        """Did what stands before the view respond, and not the view?

        What cannot be asked is not known to have.
        """
        # No query works in such a transaction.
        if self._refuses is None or self.operation.needs_rollback():
            return False
        found = False
        try:
            with self.operation.savepoint():
                found = self._refuses()
        except Exception:
            logger.exception(
                "What stands before a view could not be asked whether it has refused a request."
            )
        return found

    def _captured(self, response: HttpResponseBase) -> Outcome:
        stored = capture(response, self.terms, self.plan.max_body)
        if stored.body is MISSING and self.terms.store_body:
            report_not_stored(self.request, response, self.terms, self.plan.max_body)
        return traced(stored) if meters.active else stored

    def _asks_of(self, response: HttpResponseBase) -> bool:
        """May concluding it query a database, which an event loop refuses?

        A project's function, a file and a stream may.
        """
        return callable(self.terms.keep) or (
            response.streaming and not getattr(response, "is_async", False)
        )

    def _ended(
        self, error: BaseException, committed: Committed = _nothing_committed
    ) -> tuple[HttpResponseBase | None, BaseException]:
        """Return the response that ends a view which raised, or `None` for a failure; and what to
        raise.
        """
        try:
            if (response := committed()) is not None:
                render(response)
                return response, error
        except Exception as unfinished:  # noqa: BLE001 - mostly what had failed
            return None, unfinished if isinstance(error, Exception) else error
        if (
            isinstance(error, Exception)
            and not self.degraded
            and (status := status_of(error)) is not None
        ):
            # No query works in a transaction that is marked for rollback.
            response = (
                None
                if self.operation.needs_rollback()
                else response_to(self.request, error, status)
            )
            if response is not None and response.status_code < 500:
                self.raised = error
                return response, error
        return None, error

    def _end_after(self, error: BaseException) -> Ending:
        """Return how a view ends that raised."""
        if not isinstance(error, Exception):
            return Ending(WorkResult.CUT)  # a cancelled one writes nothing
        return self.course.decided() or Ending(WorkResult.FAILED, _failure(error, 500))

    # --------------------------------------------------------------------------------------- settle

    def settle(self, response: HttpResponseBase) -> HttpResponseBase:
        """Store or drop the view's response, and return it.

        Raises what `Operation.settle` raises.
        """
        if self.degraded:
            return self._stamp(response, self._leave())
        try:
            ended, outcome, succeeded = self._conclude(response)
            if ended is WorkResult.DROPPED and self.plan.has_course and self.course.have_begun():
                ended, outcome = _refused_after_steps(response)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self._fail(error)
        try:
            ending = Ending(ended, outcome, self.handle.seconds, succeeded)
            if self.within.blocks:
                ending = ending._replace(undone=self.within.undone, undone_by=self.within.error)
            self.operation.settle(ending)
            if self.plan.has_course and self._is_completed():
                self.course.completed()
        finally:
            status = self._leave()  # also if only a callback of the COMMIT has failed
            for each in self._listeners:
                each.ended(self)
        # What it says was rolled back, and a person must decide.
        if self._is_held and response.status_code < 400:
            raise OperationHeld
        return self._stamp(response, status)

    def _is_completed(self) -> bool:
        """Is the record of the work completed?

        Raises `OutcomeUnknown` if nobody knows, and the work may still be undone.
        """
        if self.operation.left_as is None and self.course.can_be_undone():
            raise OutcomeUnknown
        return self.operation.left_as is SettledState.COMPLETED

    async def asettle(self, response: HttpResponseBase) -> HttpResponseBase:
        """See settle()."""
        if self.degraded:
            return self._stamp(response, self._leave())
        try:
            ended, outcome, succeeded = await in_database_thread(
                self._conclude, response, keep=self._alias is not None, when=self._asks_of(response)
            )
            if (
                ended is WorkResult.DROPPED
                and self.plan.has_course
                and await self.course.ahave_begun()
            ):
                ended, outcome = _refused_after_steps(response)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            await self._afail(error)
        try:
            ending = Ending(ended, outcome, self.handle.seconds, succeeded)
            if self.within.blocks:
                ending = ending._replace(undone=self.within.undone, undone_by=self.within.error)
            await threads.asettle(self.operation, ending)
            if self.plan.has_course and self._is_completed():
                await self.course.acompleted()
        finally:
            status = self._leave()  # also if only a callback of the COMMIT has failed
            for each in self._listeners:
                await in_database_thread(each.ended, self)
        # What it says was rolled back, and a person must decide.
        if self._is_held and response.status_code < 400:
            raise OperationHeld
        return self._stamp(response, status)

    def fail(self, error: BaseException, *, committed: Committed = _nothing_committed) -> Problem:
        """End a call whose view raised, and raise: its exception, or a clearer one.

        Django makes a response of it.

        `committed` returns the view's response when only an `on_commit` callback failed: that is
        stored, unless it cannot be finished. Returns a problem to respond with instead if the
        view's writes could not be kept, or if it asked for a derived key that could not be derived
        again.
        """
        if self.degraded and isinstance(error, OperationUnknown):
            self._leave()  # without a record
            return error
        if (left := self.course.left_by(error)) is not None:
            response, error = None, left
        else:
            response, error = self._ended(error, committed)
        try:
            if response is None:
                self._fail(error)
            self._note_answer(self.settle(response))
        except Problem as problem:
            if left is None and response is None and not isinstance(problem, TransactionLost):
                raise  # the view's own exception is one of ours
            return problem
        raise error

    async def afail(
        self, error: BaseException, *, committed: Committed = _nothing_committed
    ) -> Problem:
        """See fail()."""
        if self.degraded and isinstance(error, OperationUnknown):
            self._leave()  # without a record
            return error
        if (left := await self.course.aleft_by(error)) is not None:
            response, error = None, left
        else:
            response, error = await in_database_thread(
                self._ended, error, committed, keep=self._alias is not None, when=_asks_about(error)
            )
        try:
            if response is None:
                await self._afail(error)
            self._note_answer(await self.asettle(response))
        except Problem as problem:
            if left is None and response is None and not isinstance(problem, TransactionLost):
                raise  # the view's own exception is one of ours
            return problem
        raise error

    def _note_answer(self, response: HttpResponseBase) -> None:
        """Note which response has become of the view's exception, see `responses.answer_to`."""
        if isinstance(self.raised, Http404):
            self.exchange.answer = weakref.ref(self.raised), response

    def _fail(self, error: BaseException) -> NoReturn:
        """End a call that has no response to store."""
        try:
            if not self.degraded:
                self.operation.settle(self._end_after(error))
                for each in self._listeners:
                    each.ended(self)
        finally:
            self._leave()
        raise error

    async def _afail(self, error: BaseException) -> NoReturn:
        """See _fail()."""
        try:
            if not self.degraded:
                await threads.asettle(self.operation, self._end_after(error))
                for each in self._listeners:
                    await in_database_thread(each.ended, self)
        finally:
            self._leave()
        raise error

    # ------------------------------------------------------------------------------ on its response

    def close(self) -> None:
        """Leave nothing behind, wherever an interrupt has cut it. After its end it does nothing."""
        try:
            self.operation.close()
        finally:
            for block in reversed(self.within.blocks):
                block.drop()
            if self.exchange.call is self:
                self.exchange.call = None

    def _leave(self) -> HeaderStatus:
        """Detach from a finished request: if it is sent through the view again, it is guarded
        again.

        Note on it how its record was left, or with which problem it was completed, and return that.
        """
        self._refuses = None  # it holds the request
        exchange = self.exchange
        if exchange.call is self:
            exchange.call = None
        status = HeaderStatus.DEGRADED if self.degraded else OF_RECORD[self.operation.left_as]
        if (
            self._course is not None
            and self._course.problem is not None
            and status is HeaderStatus.CREATED
        ):
            status = status_of_problem(self._course.problem, Moment.AFTER, status) or status
        exchange.status, exchange.original = status, self.original
        return status

    def _stamp(self, response: HttpResponseBase, status: HeaderStatus) -> HttpResponseBase:
        """Set the status header of the request, replacing one that its view has set."""
        set_headers(
            status, response.headers, self.spoken, response.status_code, original=self.original
        )
        self.exchange.stamped = weakref.ref(response)
        return response


def ending_of(response: HttpResponseBase, policy: Resolved) -> WorkResult:
    """Return the kind of a response.

    Of its headers only a challenge counts, and no body is proof that nothing was done.
    """
    wanted = None if policy.keep is None else wanted_by(policy, response)
    return conclusions.classify_status(
        response.status_code,
        wanted,
        policy.profile.remembers,
        challenges="WWW-Authenticate" in response.headers,
    )


def _asks_about(error: BaseException) -> bool:
    """Is a handler of the project asked what an exception becomes?

    It may query a database, which an event loop refuses.
    """
    return isinstance(error, Exception) and status_of(error) is not None


def _refused_after_steps(response: HttpResponseBase) -> tuple[WorkResult, Outcome]:
    """Return how a refusal ends behind steps.

    The key is not free for another body: a retry continues after the steps.
    """
    return WorkResult.FAILED, _failure(None, response.status_code)


def _failure(error: Exception | None, status: int) -> Outcome:
    return failed_with(error, at=datetime.now(timezone.utc), status=status)
