"""One keyed request as a call of the bracket (`engine.bracket`): the same for all entry points.

An entry point decides *where* the guard is, and hands over what only it knows. All else is here:
what is checked and refused before the view, how a view ends that has responded or raised, and what
is written of that.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from ..core import conclusions
from ..core.conclusions import Ending, SettledState, WorkResult
from ..core.failures import failed_with
from ..core.policy import Resolved
from ..core.records import MISSING, Outcome, OutcomeKind, Ticket, kind_of
from ..core.rules import Execute, Replay, Verdict, original_request
from ..core.statuses import OF_RECORD, HeaderStatus, Moment
from ..core.statuses import status_of as status_of_problem
from ..engine.bracket import Answered, GuardedCall
from ..engine.deadlines import time_for
from ..engine.operation import AtomicOperation, Operation
from ..errors import (
    ConfigurationError,
    IdempotencyError,
    OperationHeld,
    OperationUnknown,
    OutcomeUnknown,
    Problem,
    ReplayRefused,
    StoreUnavailable,
    TransactionLeftOpen,
    TransactionLost,
)
from ..instrumentation.meters import meters
from ..instrumentation.observer import Observer
from ..instrumentation.outcomes import DEGRADED, outcome_of_verdict, traced
from ..runtime.handle import Course
from ..runtime.transactions import refuse_left_open, refuse_open_transactions
from . import counting
from .atomic_requests import roll_back_request, rolled_back_elsewhere
from .exchange import Exchange, RequestIdempotency, set_headers
from .plan import Plan
from .problems import problem_response, refusal_of
from .responses import (
    capture,
    describe_bytes,
    no_response,
    rebuild,
    render,
    report_not_stored,
    response_to,
    status_of,
    wanted_by,
)

if TYPE_CHECKING:
    from ..engine.extensions import Details
    from ..engine.lease import LeaseOperation

logger = logging.getLogger("django_idempotency")

#: Completes a response as the view would, before it is rendered.
Finish = Callable[[Any], HttpResponseBase]
#: Makes the response to a problem of a request.
Respond = Callable[[Problem, HttpRequest], HttpResponseBase]

#: Asks `OnTakeover` about a call that has taken its record over. Returns the response to a call
#: whose view does not run.
Decide = Callable[["Call"], HttpResponseBase | None]


class RequestEnding(NamedTuple):
    """How a request ends whose view has responded."""

    response: HttpResponseBase
    ending: Ending


class Call(GuardedCall[HttpResponseBase]):
    """A request with a key, under its plan."""

    #: Did the store not respond, and the policy let the request run without a guard?
    degraded = False
    #: The exception of the view that has become its response.
    raised: Exception | None = None
    #: The id of this request, by which replays name it if it runs; "": it has no record.
    original = ""
    #: What the view sees as `request.idempotency`, once it runs.
    handle: RequestIdempotency
    #: Does the response say that nothing was done, whatever its status is?
    reports_failure = False
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
        respond: Respond = problem_response,
        ask_again: Callable[..., None] | None = None,
        finish: Finish | None = None,
        document: Any = None,
        decide: Decide | None = None,
        by_middleware: bool = False,
        refuses: Callable[[], bool] | None = None,
        selected: bool = False,
    ) -> None:
        """Raises what the settings raise.

        `respond` makes the response to a problem. `ask_again` repeats the view's access checks
        before a replay, and `refuses` asks whether what stands before the view would refuse the
        request. `document` is the request as extensions see it, if there are any. `decide` asks
        `OnTakeover`, and `finish` completes a response that it has found, as the view would.
        `selected`: has the project chosen the key from the payload?
        """
        # The request refers to us: a strong reference would keep it, and its uploads, until garbage
        # collection.
        self._request = weakref.ref(request)
        self.plan = plan
        self.terms = plan.terms
        self.patience = plan.terms.wait
        self._respond = respond
        self._ask_again = ask_again
        self.finish = finish
        #: Does the middleware guard a view that knows nothing of keys?
        self.by_middleware = by_middleware
        self.exchange = exchange
        self._observer = Observer(request, source=exchange.source, counter=plan.counter)
        if plan.leases:
            from ..engine.lease import LeaseOperation  # not above: its threads are for leases only

            operates: type[Operation] = LeaseOperation
        else:
            operates = AtomicOperation
        self.operation = operates(
            plan.store, ticket, self._observer, on_failure=self.terms.on_failure
        )
        #: Does what the work has written decide whether a refusal is remembered?
        self._weighs = (selected or self.terms.keep is not None) and conclusions.weighs_writes(
            self.terms.keep,
            leases=plan.leases,
            selected=selected,
            remembers=plan.profile.remembers,
        )
        self._refuses = None if plan.leases else refuses
        if self._weighs or self._refuses is not None:
            self.operation.counts_writes = True
        exchange.record = ticket.id
        exchange.operation = self.operation
        assert exchange.spoken is not None, "its key was read"
        self.spoken = exchange.spoken
        self._handle = plan.handle  # before the claim: an app may raise
        self._document = document
        self._decide = decide
        #: The request as its extensions see it; `None`: it has none.
        self._details: Details | None = None
        if self.terms.extensions:
            from ..engine.extensions import Details  # most calls have none

            self._details = Details(self.operation, self.terms, request)
        self.looks_before = plan.leases or self._details is not None

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

    def respond(self, problem: Problem) -> HttpResponseBase:
        """Return the response to a problem of this request."""
        return self._respond(problem, self.request)

    # --------------------------------------------------------------------------------------- open

    def refused(self, error: IdempotencyError) -> HttpResponseBase:
        """Return the response to a problem."""
        if isinstance(error, Problem):
            return self.respond(error)
        raise error

    def before(self) -> None:
        """See GuardedCall.before().

        Raises `LeaseInTransaction` for a lease inside an open transaction, and what extensions
        raise.
        """
        if self.plan.leases:
            refuse_open_transactions()
        document = self._document
        self._document = None  # it holds the request
        if self._details is not None:
            self._details.before_claim(document)

    def opened(self, verdict: Verdict) -> Answered[HttpResponseBase] | None:
        if isinstance(verdict, Replay):
            return Answered(self._replay(verdict))
        if not isinstance(verdict, Execute):
            raise refusal_of(verdict)
        if verdict.takeover and self._decide is not None:
            found = self._decide(self)
            if found is not None:
                return Answered(found)
        if self._details is not None:
            self._details.claimed()
        self._begin(verdict)
        return None

    def without_store(self, error: StoreUnavailable) -> None:
        self._observer("unavailable", self.operation, error)
        if self.terms.on_store_failure == "closed":
            raise error
        time_for(0)  # the store may have taken longer than the host has
        self.degraded = True
        self._begin(None)

    def abandon(self) -> None:
        """Restore the record of a claim that an error ends before the view."""
        self.operation.abandon()
        if self._details is not None:
            self._details.ended()
        self.exchange.status = HeaderStatus.REFUSED
        self.exchange.original = ""

    def _begin(self, run: Execute | None) -> None:
        """Let the view run: it sees its operation. `None`: without its store."""
        # They hold the request.
        self._ask_again = None
        self.finish = None
        if run is not None:
            self.original = original_request(self.operation.ticket)
        request: Any = self._request()
        request.idempotency = self.handle = self._handle(self.operation, self.terms, self.exchange)
        self.exchange.call = self
        self.exchange.has_begun = True
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
            self.count(outcome_of_verdict(verdict, self.operation))  # also if OnReplay raises
        response: HttpResponseBase = (
            stored
            if self.terms.on_replay is None
            else self._current(stored, verdict.outcome, original)
        )
        exchange = self.exchange
        exchange.status = HeaderStatus.REPLAYED
        exchange.original = original
        exchange.stamped = weakref.ref(response)
        return response

    def _current(self, stored: HttpResponse, outcome: Outcome, original: str) -> HttpResponseBase:
        """Return what `OnReplay` makes of a stored response, marked as that one is."""
        assert self.terms.on_replay is not None, "see _replay()"
        current: object = self.terms.on_replay(self.request, stored)
        if current is stored:
            describe_bytes(stored, outcome)
            return stored
        if not isinstance(current, HttpResponseBase):
            raise ConfigurationError(
                f"OnReplay: the function returned {current!r}. Return the response that it gets, "
                "or another one."
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

    def count(self, outcome: str | None) -> None:
        if outcome is not None:
            counting.count(self.request, outcome, self.operation)

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

    # ---------------------------------------------------------------------- how the view ends

    def ended(self, result: Any) -> RequestEnding:
        """Return how the request ends. Its response is rendered, and read, in the transaction."""
        response = result if isinstance(result, HttpResponseBase) else no_response(result)
        render(response)
        if self.degraded:
            return RequestEnding(response, Ending(WorkResult.KEPT))
        ending = self._concluded(response)
        dropped = ending.work_result is WorkResult.DROPPED
        if dropped and self.plan.has_course and self.course.have_begun():
            # A refusal behind steps: the key is not free for another body, and a retry continues
            # after the steps.
            note = _failure(None, response.status_code)
            ending = ending._replace(work_result=WorkResult.FAILED, outcome=note)
        return RequestEnding(response, ending)

    def _concluded(self, response: HttpResponseBase) -> Ending:
        """Return how a view ends that responded, or whose exception has become a response."""
        status = response.status_code
        handle = self.handle
        steered = self.plan.has_course or handle.is_held
        decided = self.course.decided() if steered else None
        if decided is not None and decided.is_final:
            handle.seconds = decided.ttl
            self._is_held = kind_of(decided.outcome) is OutcomeKind.HELD
            return decided
        work_result = WorkResult.FAILED
        if decided is None:
            work_result = handle._ending or ending_of(response, self.terms)  # noqa: SLF001 - ours
        how = conclusions.response_ending(
            status, raised=self.raised is not None, inside=self.operation.is_inside
        )
        if not how.commit:
            self.operation.set_rollback()
        if decided is not None:
            # It has given up: this is its last word, unless it is a problem of ours, or an error
            # page.
            if how.answers and self.course.problem is None:
                decided = decided._replace(outcome=self._captured(response))
            return decided._replace(ttl=handle.seconds)
        unfinished = steered and self.course.is_unfinished()
        if not how.answers or unfinished or work_result is WorkResult.FAILED:
            return Ending(WorkResult.FAILED, _failure(self.raised, status), handle.seconds)
        if self.operation.counts_writes:
            work_result = self._weighed(work_result, response)
        succeeded = status < 400 and not self.reports_failure
        if succeeded and self.plan.leases:
            operation = cast("LeaseOperation", self.operation)
            refuse_left_open(operation, but=self.plan.store.using)
        stored = self._captured(response) if work_result is WorkResult.KEPT else None
        return Ending(work_result, stored, handle.seconds, succeeded)

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
        if self._details is not None:
            self._details.did_nothing = refusal and not wrote
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

    # ------------------------------------------------------------------------------------- settle

    def settle(self, ending: RequestEnding) -> HttpResponseBase:
        """Store or drop the view's response, and return it. Raises what `Operation.settle`
        raises.
        """
        response = ending.response
        if self.degraded:
            return self._stamp(response, self._leave())
        operation = self.operation
        fails = ending.ending.work_result is WorkResult.FAILED
        rolls_back = operation.is_inside and (fails or operation.needs_rollback())
        try:
            undone = rolled_back_elsewhere(but=self.plan.store.using)
            operation.settle(ending.ending._replace(undone=undone))
            if self.plan.has_course and self._is_completed():
                self.course.completed()
        except BaseException:
            rolls_back = operation.is_inside
            raise
        finally:
            # Also if only a callback of the COMMIT has failed.
            status = self._leave()
            if rolls_back:
                self.roll_back_request()
            if self._details is not None:
                self._details.ended()
        # What it says was rolled back, and a person must decide.
        if self._is_held and response.status_code < 400:
            raise OperationHeld
        return self._stamp(response, status)

    def roll_back_request(self) -> None:
        """Roll the request back with its work where ATOMIC_REQUESTS holds, unless its record there
        is completed.
        """
        operation = self.operation
        if not operation.is_inside or operation.left_as is not SettledState.COMPLETED:
            roll_back_request()

    def _is_completed(self) -> bool:
        """Is the record of the work completed?

        Raises `OutcomeUnknown` if nobody knows, and the work may still be undone.
        """
        if self.operation.left_as is None and self.course.can_be_undone():
            raise OutcomeUnknown
        return self.operation.left_as is SettledState.COMPLETED

    def fail(self, error: BaseException) -> HttpResponseBase:
        """End a call whose view raised, and raise: its exception, or a clearer one.

        Django makes a response of it. Returns the response to a problem instead if the view's
        writes could not be kept, or if it asked for a derived key that could not be derived again.
        """
        if self.degraded and isinstance(error, OperationUnknown):
            self._leave()  # without a record
            self.roll_back_request()
            return self.respond(error)
        left = self.course.left_by(error)
        if left is not None:
            return self._failed(left, (Problem,))
        response, error = self._response_to(error)
        if response is None:
            return self._failed(error, (TransactionLost, TransactionLeftOpen))
        try:
            ending = self.ended(response)
        except BaseException as failed:
            self._settle_failure(failed)
            raise
        try:
            self._note_answer(self.settle(ending))
        except Problem as problem:
            self.roll_back_request()
            return self.respond(problem)
        self.roll_back_request()  # the exception may be answered before Django sees it
        raise error

    def _failed(self, error: BaseException, answers: tuple[type[Problem], ...]) -> HttpResponseBase:
        """Settle a failure and raise its error. A problem of a kind in `answers` is the response
        instead.
        """
        try:
            self._settle_failure(error)
            operation = self.operation
            if operation.is_inside and operation.left_as is SettledState.COMPLETED:
                # A person must decide, and what says so would be rolled back with the exception.
                return self.respond(OperationHeld())
            raise error
        except answers as problem:
            self.roll_back_request()
            return self.respond(problem)

    def _response_to(self, error: BaseException) -> tuple[HttpResponseBase | None, BaseException]:
        """Return the response that Django makes of an exception and that ends its view, or `None`
        for a failure; and what to raise.
        """
        status = status_of(error)
        # No query works in a transaction that is marked for rollback.
        if status is None or self.degraded or self.operation.needs_rollback():
            return None, error
        assert isinstance(error, Exception)
        try:
            response = response_to(self.request, error, status)
        except Exception as unfinished:  # noqa: BLE001 - of the project's own handler
            return None, unfinished
        if response.status_code >= 500:
            return None, error
        self.raised = error
        return response, error

    def _note_answer(self, response: HttpResponseBase) -> None:
        """Note which response has become of the view's exception, see `responses.answer_to`."""
        if isinstance(self.raised, Http404):
            self.exchange.answer = weakref.ref(self.raised), response

    def _settle_failure(self, error: BaseException) -> None:
        """End a call that has no response to store."""
        try:
            if not self.degraded:
                self.operation.settle(self._end_after(error))
        finally:
            self._leave()
            if self._details is not None:
                self._details.ended()

    def _end_after(self, error: BaseException) -> Ending:
        """Return how a view ends that raised."""
        if not isinstance(error, Exception):
            return Ending(WorkResult.CUT)  # a cancelled one writes nothing
        return self.course.decided() or Ending(WorkResult.FAILED, _failure(error, 500))

    # ----------------------------------------------------------------------------- on its response

    def close(self) -> None:
        try:
            self.operation.close()
        finally:
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
        exchange.status = status
        exchange.original = self.original
        return status

    def _stamp(self, response: HttpResponseBase, status: HeaderStatus) -> HttpResponseBase:
        """Set the status header of the request, replacing one that its view has set."""
        set_headers(
            status, response.headers, self.spoken, response.status_code, original=self.original
        )
        self.exchange.stamped = weakref.ref(response)
        if status is HeaderStatus.CREATED and self.operation.is_inside:
            # The COMMIT is the project's. If another response is sent, it may have failed.
            self.exchange.status = HeaderStatus.UNKNOWN
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


def _failure(error: Exception | None, status: int) -> Outcome:
    return failed_with(error, at=datetime.now(timezone.utc), status=status)
