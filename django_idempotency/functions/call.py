"""One call of a guarded function: its ticket, what each verdict means for it, and how its end is stored."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, NamedTuple

from ..concurrency.cancellation import run_to_completion
from ..core import rules
from ..core.at_rest import readable
from ..core.conclusions import SettledState, WorkResult
from ..core.failures import failed_with
from ..core.records import CALL_METHOD, CANCELLATION, Guarantee, Outcome, OutcomeKind, kind_of, shortened
from ..core.rules import Busy, Execute, Mismatch, Replay, Verdict
from ..engine.atomic import AtomicOperation
from ..engine.lease import LeaseOperation
from ..engine.operation import Operation
from ..errors import (
    CalledItself,
    ConfigurationError,
    DeadlinePassed,
    HeldForPerson,
    IdempotencyError,
    InProgress,
    OperationCancelled,
    OperationHeld,
    Problem,
    RecordUnreadable,
    RequestMismatch,
    ResponseNotStored,
    StoreUnavailable,
    is_answer,
    translate_django_error,
)
from ..instrumentation.counting import count, outcome_of_verdict
from ..instrumentation.meters import Source, meters
from ..instrumentation.observer import Observer
from ..instrumentation.outcomes import DEGRADED, HELD, REFUSED, outcome_of
from ..instrumentation.traces import traced
from ..runtime.registry import body_limit, store_of
from ..runtime.takeovers import HELD_FOR, HoldForReview, RunAgain, UseResult
from ..runtime.tickets import issue
from ..runtime.transactions import refuse_open_transactions
from ..serialization.results import Unreadable, Unstorable, dump_error, load_error
from ..steps.endings import acompleted, completed, ending_by_steps, is_unfinished, runs_under
from .current import CURRENT, CurrentOperation, Takeover, living
from .deadlines import remaining
from .executions import EXECUTION, suspends
from .keys import digest_of
from .terms import FunctionTerms

logger = logging.getLogger("django_idempotency")

#: Types that a function may unexpectedly return, for example through a wrapper that hides them from the decorator.
UNRUN = (Awaitable, Generator, AsyncGenerator, Future)


class CallEnd(NamedTuple):
    """How a call ends: what is stored, and what the caller gets."""

    work_result: WorkResult
    outcome: Outcome | None = None
    ttl: float | None = None
    returned: Any = None
    raised: Exception | None = None

    def result(self) -> Any:
        """Return the result, or raise the error."""
        if self.raised is not None:
            raise self.raised
        return self.returned


class FunctionCall:
    """A call that has a key. `ended`, `failed` and `decided` determine how it ends, and `settle` stores that."""

    observer = Observer()  # without a request
    #: The labels of its figures; `None`: nothing is measured.
    source: Source | None = None
    #: What the work sees, once it runs; or `on_takeover`.
    current: CurrentOperation

    def __init__(self, terms: FunctionTerms, payload: Any, key: str) -> None:
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
            self.operation = LeaseOperation(
                store,
                ticket,
                self.observer,
                hold_failures=policy.on_failure == "hold",
                renews=until_then is None,
                left=remaining,
                execution=self.execution,
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

    def running(self, arguments: Callable[[], bytes | None] | None = None) -> CurrentOperation:
        """Return the context in which the function runs. `arguments` returns those of the call, as bytes."""
        self.current = CurrentOperation(self.operation, self._outer)
        runs_under(self.current, self.policy, arguments=arguments)
        return self.current

    def takeover(self) -> Takeover | None:
        """Return the takeover that `on_takeover` must decide, if there is one."""
        run = self.operation.run
        if run is None or not run.takeover:
            return None
        self.current = takeover = Takeover(self.operation, self.payload, self._outer)
        return takeover

    # ------------------------------------------------------------------------------------------------------ replays

    def replayed(self, verdict: Verdict) -> Any:
        """Return the stored result, or raise the error of a call that does not run."""
        try:
            result = self._answer(verdict)
        except IdempotencyError as error:
            self._count_refusal(error)
            raise self.naming(error)  # noqa: B904 - itself
        except Exception:  # the stored one, or on_replay's
            self.count(verdict)
            raise
        self.count(verdict)
        return result

    def count(self, verdict: Verdict) -> None:
        """Count a call that runs, or whose stored result is returned."""
        if self.source is not None and (outcome := outcome_of_verdict(verdict, self.operation)) is not None:
            count(self.source, outcome, self.operation)

    def _count_refusal(self, error: IdempotencyError) -> None:
        if self.source is not None:
            held = isinstance(error, HeldForPerson)
            refused = outcome_of(error.code) if isinstance(error, Problem) else REFUSED
            count(self.source, HELD if held else refused, self.operation)

    def naming(self, error: IdempotencyError) -> IdempotencyError:
        """Set the record on an error, unless the error belongs to another call."""
        if error.key is None:
            ticket = self.operation.ticket
            error.scope, error.key = ticket.scope, ticket.key
        return error

    def _answer(self, verdict: Verdict) -> Any:
        match verdict:
            case Replay(outcome=outcome):
                record = self.operation.record
                assert record is not None
                result = remembered(self.terms, outcome)
                return result if self.terms.on_replay is None else self.terms.on_replay(result, record)
            case Busy(retry_after=retry_after):
                raise InProgress(headers={"Retry-After": str(retry_after)})
            case Mismatch():
                raise RequestMismatch
            case rules.Unreadable():
                raise RecordUnreadable
            case Execute():
                raise AssertionError("this call runs")

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
        suspended = isinstance(self.operation, LeaseOperation) and self.operation.resuming > 0
        return suspended or self.policy.on_store_failure == "closed"

    # ------------------------------------------------------------------------------------------------------ endings

    def ended(self, result: Any) -> CallEnd:
        """Return the end of a call that returned. A result that cannot be stored is still returned, and never recomputed.

        Raises `ConfigurationError` for a generator or a coroutine, which would run when this call is over.
        """
        kind: Any = type(result)
        if _runs_later(kind):
            if isinstance(result, (Coroutine, Generator)):
                result.close()  # it will never be awaited
            raise ConfigurationError(
                f"{self.terms.name} returned a {type(result).__name__}, which runs after the call: nothing would be guarded. "
                "Guard the function that makes it, or return a list."
            )
        if (decided := ending_by_steps(self.current)) is not None and decided.is_held:
            # The function went on after a step that must be looked into.
            return CallEnd(**decided._asdict(), raised=self.naming(HeldForPerson()))
        if is_unfinished(self.current):
            return CallEnd(work_result=WorkResult.FAILED, returned=result)
        given_up = self.operation.needs_rollback()
        try:
            outcome = self._outcome(OutcomeKind.RESULT, self.terms.results.dump(result))
        except Exception as error:  # noqa: BLE001 - including a serializer's error: the work is done
            outcome = self._unstored(OutcomeKind.RESULT, error)
        # The work did not mark it: a statement of the serializer failed.
        if not given_up and self.operation.needs_rollback():
            return _failed(StoreUnavailable(), raised=StoreUnavailable())
        return CallEnd(work_result=WorkResult.KEPT, outcome=outcome, ttl=self.current.seconds, returned=result)

    def failed(self, error: BaseException) -> CallEnd:
        """Return the end of a call that raised. A kept exception is stored after the call's writes are rolled back."""
        kept = self.terms.kept
        if suspends(self.execution, error):
            leases = self.policy.guarantee is Guarantee.LEASE  # no transaction lasts that long
            return CallEnd(work_result=WorkResult.SUSPENDED) if leases else _failed(error)
        decided = ending_by_steps(self.current)
        if decided is not None and (decided.is_held or not is_answer(error, kept)):
            return CallEnd(**decided._asdict())
        if not is_answer(error, kept) or is_unfinished(self.current):
            return _failed(error) if isinstance(error, Exception) else CallEnd(work_result=WorkResult.CUT)
        self.operation.set_rollback()
        try:
            outcome = self._outcome(OutcomeKind.ERROR, dump_error(error, kept))
        except Exception as unstorable:  # noqa: BLE001 - as above
            outcome = self._unstored(OutcomeKind.ERROR, unstorable)
        return CallEnd(work_result=WorkResult.KEPT, outcome=outcome, ttl=self.current.seconds)

    def leaving(self, error: BaseException) -> BaseException:
        """Return the exception that the caller gets for the one that the function raised."""
        if self.policy.guarantee is Guarantee.ATOMIC and suspends(self.execution, error):
            refusal = ConfigurationError(
                f"{self.terms.name} was suspended, and no transaction lasts that long: its writes were rolled back, but "
                f'its engine considers its steps done. Type guarantee="lease".'
            )
            refusal.__cause__ = error
            return refusal
        if isinstance(error, OperationHeld):  # by a step
            held = self.naming(HeldForPerson(str(error)))
            held.__cause__ = error
            return held
        return translate_django_error(error)

    def decided(self, decision: Any) -> CallEnd | None:
        """Return the end of a call that `on_takeover` has decided; `None`: the call runs."""
        match decision:
            case RunAgain():
                return None
            case UseResult(result=result):
                return self.ended(result)
            case HoldForReview():
                key = shortened(self.operation.ticket.key)
                logger.error("Held: %s under %s waits for a person to release its record.", self.terms.name, key)
                return CallEnd(
                    work_result=WorkResult.KEPT,
                    outcome=OutcomeKind.HELD.outcome(),
                    ttl=HELD_FOR,
                    raised=self.naming(HeldForPerson()),
                )
        raise ConfigurationError(
            f"on_takeover of {self.terms.name} returned {decision!r}. Return takeover.run(), .found(result) or .hold()."
        )

    def undecided(self, error: BaseException) -> CallEnd:
        """Return the end of an undecided takeover: the record stays as it is, so that the next call asks again."""
        end = self.failed(error)
        return end if end.work_result is WorkResult.KEPT else CallEnd(work_result=WorkResult.CUT)

    def settle(self, end: CallEnd) -> None:
        """Settle in the store. Raises what `Operation.settle` raises."""
        self.operation.settle(end.work_result, end.outcome, end.ttl)
        if self.operation.left_as is SettledState.COMPLETED:
            completed(self.current)

    async def asettle(self, end: CallEnd) -> None:
        """See settle(). A cancellation takes effect only after it has completed."""
        await run_to_completion(self.operation.asettle(end.work_result, end.outcome, end.ttl))
        if self.operation.left_as is SettledState.COMPLETED:
            await acompleted(self.current)

    def _outcome(self, kind: OutcomeKind, body: bytes) -> Outcome:
        if not self.policy.store_body:
            return kind.outcome()
        limit = body_limit(self.policy, self.operation.store)
        if len(body) > limit:
            raise Unstorable(f"it takes {len(body)} bytes, but max_body is {limit}")
        return traced(kind.outcome(body))

    def _unstored(self, kind: OutcomeKind, error: Exception) -> Outcome:
        with suppress(Exception):  # raised by a log filter: the work is done, and must not be repeated because of it
            # Log neither its cause nor a serializer's message: they may contain the data that was to be stored.
            logger.warning("The result of %s is not stored: %s.", self.terms.name, str(error).rstrip("."))
        return kind.outcome()


def _failed(error: BaseException, raised: IdempotencyError | None = None) -> CallEnd:
    """Return the end of a call that failed, with what is noted of that."""
    note = failed_with(error, at=datetime.now(timezone.utc))
    return CallEnd(work_result=WorkResult.FAILED, outcome=note, raised=raised)


def source_of(terms: FunctionTerms) -> Source:
    """Return what the figures of a function's calls are labelled with."""
    return Source(entry_point="function", route=terms.name, store=terms.resolved().store)


@lru_cache(maxsize=256)
def _runs_later(kind: type) -> bool:
    return issubclass(kind, UNRUN)


def remembered(terms: FunctionTerms, outcome: Outcome) -> Any:
    """Return the result in an outcome, or raise its exception, `ResponseNotStored` or `HeldForPerson`."""
    outcome = readable(outcome)
    if outcome == CANCELLATION:
        raise OperationCancelled
    kind = kind_of(outcome)
    if kind is OutcomeKind.HELD:
        raise HeldForPerson
    if not isinstance(outcome.body, bytes):
        raise ResponseNotStored
    try:
        if kind is not OutcomeKind.ERROR:
            return terms.results.load(outcome.body)
        error = load_error(outcome.body, terms.kept)
    except Unreadable as unreadable:
        raise ResponseNotStored(
            f"{terms.name} was carried out, but its result cannot be read: {unreadable}"
        ) from unreadable
    raise error
