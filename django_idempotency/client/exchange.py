"""One call: write the attempt down, send it, read the response, wait, and again. For every library, sync and async."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from asgiref.sync import sync_to_async

from ..core import outgoing
from ..core.outgoing import BROKEN, ENDED, NOT_SENT, CallState, Verdict
from ..errors import ConfigurationError, DeadlinePassed
from ..functions.deadlines import remaining
from ..stores.base import utcnow
from .budget import RetryBudget, budget_of
from .ledger import Ledger, Started
from .messages import Answer, CallFacts, OutgoingRequest, is_replayed, reference_of
from .names import CallName
from .providers import LONGEST_DEADLINE, provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a transport retries. Durations are in seconds."""

    provider: str
    #: The most retries of one request.
    retries: int = 3
    #: All attempts and pauses of one request end within this time, and within the host's `deadline()`.
    deadline: float = 30.0
    #: The longest pause before the first retry, which doubles each time, and the longest of all.
    base: float = 0.5
    longest: float = 10.0
    #: Is a request that nothing names refused, if its method is not safe?
    require_names: bool = False
    #: Shared by all transports of the process that call the same host; `None`: that one.
    budget: RetryBudget | None = None

    def __post_init__(self) -> None:
        if self.retries < 0 or not 0 < self.deadline <= LONGEST_DEADLINE or self.base < 0 or self.longest < 0:
            raise ValueError(
                "retries, base and longest are not negative, and deadline is a positive number of seconds, at most "
                f"{LONGEST_DEADLINE:g}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """The exceptions of an HTTP library."""

    #: Was no connection made, so that nothing was sent?
    not_sent: Callable[[Exception], bool]
    #: The connection broke, or the response did not come in time. No other exception is retried.
    broken: tuple[type[Exception], ...]


class Exchange:
    """One call of one process. `run()` and `arun()` send with what the transport gives them: a key, and seconds left."""

    def __init__(self, terms: Terms, errors: Errors, name: CallName, request: OutgoingRequest) -> None:
        if name.resumption is not None and name.resumption.provider != terms.provider:
            raise ConfigurationError(
                f'The "CLIENT" of the provider {name.resumption.provider!r} has a transport for {terms.provider!r}, so the call '
                "would be made twice. Nothing was sent."
            )
        self._terms, self._errors, self._name = terms, errors, name
        self._ledger = Ledger(provider(terms.provider), name, request, margin=terms.deadline)
        self._budget = budget_of(request.host) if terms.budget is None else terms.budget
        self._ends = time.monotonic() + min(terms.deadline, _or_infinite(remaining()))
        self._retries = 0
        self._clean = False
        self._attempts = 0

    def run(self, send: Callable[[str, float], Answer]) -> Answer:
        """Make the call. Raises what the last attempt raised, and what `Ledger.start()` raises."""
        self._require_time()
        while True:
            started = self._ledger.start()
            if isinstance(started, Answer):
                return self._answered(started, CallState.SUCCEEDED)
            self._note(started)
            try:
                answer = send(started.key, self._left())
            except Exception as error:
                verdict, pause = self._failed(error)
                if pause is None:
                    self._ledger.end(started, self._ending(verdict), None)
                    raise
            else:
                verdict, pause = self._judged(answer)
                if pause is None:
                    self._ledger.end(started, self._ending(verdict), answer)
                    return self._answered(self._with_facts(answer, started), self._ending(verdict))
            self._clean = outgoing.stays_clean(verdict, clean=self._clean)
            time.sleep(pause)
            if self._left() <= 0:
                self._ledger.end(started, self._ending(verdict), None)
                raise DeadlinePassed

    async def arun(self, send: Callable[[str, float], Awaitable[Answer]]) -> Answer:
        """See run()."""
        self._require_time()
        while True:
            started = await sync_to_async(self._ledger.start)()
            if isinstance(started, Answer):
                return self._answered(started, CallState.SUCCEEDED)
            self._note(started)
            try:
                answer = await send(started.key, self._left())
            except Exception as error:
                verdict, pause = self._failed(error)
                if pause is None:
                    await sync_to_async(self._ledger.end)(started, self._ending(verdict), None)
                    raise
            else:
                verdict, pause = self._judged(answer)
                if pause is None:
                    await sync_to_async(self._ledger.end)(started, self._ending(verdict), answer)
                    return self._answered(self._with_facts(answer, started), self._ending(verdict))
            self._clean = outgoing.stays_clean(verdict, clean=self._clean)
            await asyncio.sleep(pause)
            if self._left() <= 0:
                await sync_to_async(self._ledger.end)(started, self._ending(verdict), None)
                raise DeadlinePassed

    # ---------------------------------------------------------------------------------------------------- decisions

    def _note(self, started: Started) -> None:
        """Look whether another process has sent the same call since our last attempt."""
        self._clean = started.first or (self._clean and started.attempts == self._attempts + 1)
        self._attempts = started.attempts

    def _failed(self, error: Exception) -> tuple[Verdict, float | None]:
        """Say what an exception means, and how long to wait; `None`: do not retry."""
        verdict = NOT_SENT if self._errors.not_sent(error) else BROKEN
        if not isinstance(error, self._errors.broken):
            return replace(verdict, retry=False), None
        return verdict, self._pause(verdict, 0.0)

    def _judged(self, answer: Answer) -> tuple[Verdict, float | None]:
        """See _failed(), for a response."""
        headers = answer.by_name
        verdict = outgoing.judge(answer.status, headers, answer.body)
        if verdict.state is CallState.SUCCEEDED:
            self._budget.earn()
        return verdict, self._pause(verdict, outgoing.retry_after(headers.get("retry-after"), now=utcnow()))

    def _pause(self, verdict: Verdict, floor: float) -> float | None:
        if not verdict.retry or self._retries >= self._terms.retries:
            return None
        base, longest = self._terms.base, self._terms.longest
        pause = outgoing.pause(self._retries, floor=floor, base=base, longest=longest, random=random.random)
        if pause >= self._left() or not self._budget.spend():
            return None
        self._retries += 1
        return pause

    def _ending(self, verdict: Verdict) -> CallState:
        return outgoing.ending(verdict, clean=self._clean, resuming=self._name.resumption is not None)

    def _left(self) -> float:
        return self._ends - time.monotonic()

    def _require_time(self) -> None:
        if self._left() <= 0:
            raise DeadlinePassed

    def _with_facts(self, answer: Answer, started: Started) -> Answer:
        facts = CallFacts(
            name=self._name.name,
            key=started.key,
            attempts=started.attempts,
            stored=False,
            replayed=is_replayed(answer),
            reference=reference_of(answer),
        )
        return replace(answer, facts=facts)

    def _answered(self, answer: Answer, state: CallState) -> Answer:
        if self._name.step is not None and state in ENDED:
            self._name.step.answered.append(self._name.name)
        return answer


def _or_infinite(seconds: float | None) -> float:
    return float("inf") if seconds is None else seconds
