"""One call: write the attempt down, send it, read the response, wait, and again.

For every library, sync and async.

Each host has a budget of retries, shared by all transports of a process: an outage is not made
worse by us. A retry costs a token. A success earns a tenth of one, and so do ten seconds. At one
call a second or more, at most one request in ten is a retry, once the tokens that the bucket began
with are gone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...core.concurrency import new_lock, run_to_completion
from ...engine.deadlines import remaining
from ...errors import CallWithoutName, ConfigurationError, DeadlinePassed, StreamedRequest
from ...stores.base import utcnow
from ...stores.lending import in_database_thread
from ..driving import adrive, drive
from . import rules
from .adaptive import MOST_HOSTS, Turns, pace_of
from .ledger import Ledger, Started
from .lookup import look_up
from .messages import Answer, CallFacts, OutgoingRequest, is_replayed, reference_of
from .names import CallName, name_of
from .providers import LONGEST_DEADLINE, provider
from .rules import BROKEN, ENDED, NOT_SENT, SAFE_METHODS, CallState

#: Tokens that a bucket holds, and begins with: enough for the hiccups of a host that is rarely
#: called.
CAPACITY = 10.0
PER_SUCCESS = 0.1
PER_SECOND = 0.1


class RetryBudget:
    """A token bucket. Thread safe; `clock` returns seconds."""

    def __init__(
        self, *, capacity: float = CAPACITY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._capacity = self._tokens = capacity
        self._clock = clock
        self._filled_at = clock()
        self._lock = new_lock()

    def spend(self) -> bool:
        """Take a token for a retry. Returns whether there was one."""
        with self._lock:
            self._fill(0.0)
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def earn(self) -> None:
        """Note a success."""
        with self._lock:
            self._fill(PER_SUCCESS)

    def _fill(self, earned: float) -> None:
        now = self._clock()
        earned += (now - self._filled_at) * PER_SECOND
        self._tokens = min(self._capacity, self._tokens + earned)
        self._filled_at = now


@lru_cache(maxsize=MOST_HOSTS)
def budget_of(host: str) -> RetryBudget:  # noqa: ARG001 - the key of the cache
    """Return this process's budget of a host.

    Two threads that are the first to call it may begin with one each.
    """
    return RetryBudget()


# ------------------------------------------------------------------------------------------- a call


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a client retries. Durations are in seconds."""

    provider: str
    #: The most retries of one request.
    retries: int = 3
    #: All attempts and pauses of one request end within this time, and within the host's
    #: `deadline()`.
    deadline: float = 30.0
    #: The longest pause before the first retry, which doubles each time, and the longest of all.
    base: float = 0.5
    longest: float = 10.0
    #: Is a request that nothing names refused, if its method is not safe? Otherwise it passes as it
    #: is, and once.
    require_names: bool = True
    #: Shared by all clients of the process that call the same host; `None`: that one.
    budget: RetryBudget | None = None
    #: Does the process send less to a host that throttles, with all its clients that are adaptive?
    #: See `adaptive.py`.
    adaptive: bool = False

    def __post_init__(self) -> None:
        if (
            self.retries < 0
            or not 0 < self.deadline <= LONGEST_DEADLINE
            or self.base < 0
            or self.longest < 0
        ):
            raise ValueError(
                "retries, base and longest are not negative, and deadline is a positive "
                "number of seconds, at most "
                f"{LONGEST_DEADLINE:g}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """The exceptions of an HTTP library."""

    #: Was no connection made, so that nothing was sent?
    not_sent: Callable[[Exception], bool]
    #: The connection broke, or the response did not come in time. No other exception is retried.
    broken: tuple[type[Exception], ...]


def exchange_for(
    terms: Terms, errors: Errors, request: OutgoingRequest, name: str | None = None
) -> Exchange | None:
    """Return the call that a request makes; `None`: it passes as it is.

    `name` is what the request itself has.

    Raises `CallWithoutName`, `StreamedRequest`, and what `name_of()` raises.
    """
    if request.method in SAFE_METHODS:
        return None
    found = name_of(name, request.header(provider(terms.provider).header))
    if found is None:
        if terms.require_names:
            raise CallWithoutName
        return None
    if request.streamed:
        raise StreamedRequest
    return Exchange(terms, errors, found, request)


def shorter(timeout: float | None, left: float) -> float:
    """Return a timeout that is not longer than what is left (seconds)."""
    return left if timeout is None else min(timeout, left)


#: What a call needs from outside: an attempt to be sent, or seconds to wait; `None`: its next
#: attempt, written down.
Wanted = Started | float | None


class Exchange:
    """One call of one process. `run()` and `arun()` send with what the client gives them: a key,
    and seconds left.

    Whatever ends it, the row of its last attempt is ended with it: what may have begun is unknown,
    and nobody sends later what its caller was told has failed.
    """

    #: The attempt that is written down and not ended.
    _open: Started | None = None
    #: What is known of it, should it end now, and its response.
    _verdict = NOT_SENT
    _answer: Answer | None = None

    def __init__(
        self, terms: Terms, errors: Errors, name: CallName, request: OutgoingRequest
    ) -> None:
        if name.resumption is not None and name.resumption.provider != terms.provider:
            raise ConfigurationError(
                f'The "CLIENT" of the provider {name.resumption.provider!r} is a client of '
                f"{terms.provider!r}, so the call "
                "would be made twice. Nothing was sent."
            )
        self._terms = terms
        self._errors = errors
        self._name = name
        self._ledger = Ledger(
            provider(terms.provider), name, request, margin=terms.deadline, look_up=look_up
        )
        self._budget = budget_of(request.host) if terms.budget is None else terms.budget
        self._turns = Turns(pace_of(request.host) if terms.adaptive else None)
        self._began = time.monotonic()
        left = remaining()
        self._ends = self._began + shorter(left, terms.deadline)
        self._retries = 0
        #: Did every attempt before the last one do nothing, as far as anybody here has seen?
        self._clean = False

    def took(self) -> float:
        """Return for how long it has run (seconds)."""
        return time.monotonic() - self._began

    def run(self, send: Callable[[str, float], Answer]) -> Answer:
        """Make the call. Raises what the last attempt raised, and what `Ledger.start()` raises."""

        def do(wanted: Wanted) -> Any:
            if wanted is None:
                return self._start()
            return (
                send(wanted.key, self._left())
                if isinstance(wanted, Started)
                else time.sleep(wanted)
            )

        try:
            return drive(self._attempts(), do)
        finally:
            self._turns.leave()
            self._end()

    async def arun(self, send: Callable[[str, float], Awaitable[Answer]]) -> Answer:
        """See run()."""

        async def do(wanted: Wanted) -> Any:
            if wanted is None:
                return await run_to_completion(in_database_thread(self._start))
            return await (
                send(wanted.key, self._left())
                if isinstance(wanted, Started)
                else asyncio.sleep(wanted)
            )

        try:
            return await adrive(self._attempts(), do)
        except GeneratorExit:
            # nothing can be awaited any more: its row stays open, as that of a dead process
            self._open = None
            raise
        finally:
            self._turns.leave()
            if self._open is not None:
                await run_to_completion(in_database_thread(self._end))

    def _attempts(self) -> Generator[Wanted, Any, Answer]:
        while True:
            self._require_time()
            started = yield None
            if isinstance(started, Answer):
                return self._answered(started)
            while wait := self._turns.wait(time.monotonic(), self._left()):
                yield wait
            self._require_time()
            self._verdict = BROKEN  # until its response is here
            try:
                answer = yield started
            except Exception as error:
                pause = self._failed(error)
                if pause is None:
                    raise
            else:
                pause = self._judged(answer)
                if pause is None:
                    return self._answered(answer, started)
            yield pause

    # -------------------------------------------------------------------------------------- its row

    def _start(self) -> Started | Answer:
        """See Ledger.start(). The attempt is not sent yet."""
        started = self._ledger.start()
        if isinstance(started, Answer):
            self._open = None
            return started
        # Another process may have sent the same call since our last attempt.
        alone = self._open is not None and started.attempts == self._open.attempts + 1
        self._clean = started.clean or (
            alone and rules.stays_clean(self._verdict, clean=self._clean)
        )
        self._open = started
        self._verdict = NOT_SENT
        self._answer = None
        return started

    def _end(self) -> None:
        """End the row of the last attempt, unless that is done."""
        started = self._open
        self._open = None
        if started is not None:
            self._ledger.end(started, self._ending(), self._answer)

    # ------------------------------------------------------------------------------------ decisions

    def _failed(self, error: Exception) -> float | None:
        """Note what an exception means. Return how long to wait; `None`: do not retry."""
        self._verdict = NOT_SENT if self._errors.not_sent(error) else BROKEN
        return self._pause(0.0) if isinstance(error, self._errors.broken) else None

    def _judged(self, answer: Answer) -> float | None:
        """See _failed(), for a response."""
        self._verdict = rules.judge(answer.status, answer.by_name)
        self._answer = answer
        self._turns.heard(answer.status, time.monotonic())
        if self._verdict.state is CallState.SUCCEEDED:
            self._budget.earn()
        if not self._verdict.retry:
            return None
        return self._pause(rules.retry_after(answer.by_name.get("retry-after"), now=utcnow()))

    def _pause(self, floor: float) -> float | None:
        if self._retries >= self._terms.retries or not self._turns.comes(
            time.monotonic(), self._left()
        ):
            return None
        base = self._terms.base
        longest = self._terms.longest
        pause = rules.pause(
            self._retries, floor=floor, base=base, longest=longest, random=random.random
        )
        if pause >= self._left() or not self._budget.spend():
            return None
        self._retries += 1
        return pause

    def _ending(self) -> CallState:
        return rules.ending(
            self._verdict, clean=self._clean, resuming=self._name.resumption is not None
        )

    def _left(self) -> float:
        return self._ends - time.monotonic()

    def _require_time(self) -> None:
        if self._left() <= 0:
            again = (
                "The deadline passed before the call was sent again. Its last attempt had no "
                "result."
            )
            raise DeadlinePassed(again if self._retries else "")

    def _answered(self, answer: Answer, by: Started | None = None) -> Answer:
        """Return a response with its facts; one that is stored has them."""
        if self._name.step is not None and (by is None or self._ending() in ENDED):
            self._name.step.answered.append(self._name.name)
        if by is None:
            return answer
        replayed = is_replayed(answer)
        reference = reference_of(answer)
        facts = CallFacts(
            name=self._name.name,
            key=by.key,
            attempts=by.attempts,
            stored=False,
            replayed=replayed,
            reference=reference,
        )
        return replace(answer, facts=facts)
