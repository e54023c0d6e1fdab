"""What is decided about a claimed request before its view runs: is it screened out, and did a crashed one do its work?

claim ── screening: is the key one too many, or are its facts another's? ── on_takeover: what became of it? ── the view
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.http.response import HttpResponseBase

from ..contrib.screening.screening import Screening
from ..core.conclusions import SettledState, WorkResult
from ..core.concurrency.cancellation import run_to_completion
from ..core.records import MISSING, Guarantee, Outcome
from ..core.rules import Execute, Verdict
from ..errors import OperationHeld, ReplayRefused
from ..instrumentation.observer import Observer
from ..instrumentation.outcomes import TAKEN_OVER
from . import counting
from .responses import FINAL, rebuild
from .settling import RunningExchange
from .status import HeaderStatus, note, set_headers
from .takeovers import Finish, Takeover, TakeoverEnd, aask, ask, end_of


class DecidingExchange(RunningExchange):
    """A keyed request whose claim has been made."""

    _observer: Observer
    #: Repeats the view's access checks.
    _ask_again: Callable[..., None] | None
    #: Completes a found response as the view would.
    _finish: Finish | None

    @property
    def _leases(self) -> bool:
        return self.operation.ticket.guarantee is Guarantee.LEASE

    # ----------------------------------------------------------------------------------------------------- screening

    def _refuse_flood(self, screening: Screening) -> None:
        """Raise `TooManyKeys` for a key that is new, if its client has made too many."""
        found = screening.flooded(self.operation.store)
        if found is not None and found.problem is not None:
            self._observer(found.event, self.operation)
            raise found.problem

    async def _arefuse_flood(self, screening: Screening) -> None:
        """See _refuse_flood()."""
        found = await sync_to_async(screening.flooded)(self.operation.store)
        if found is not None and found.problem is not None:
            await self._observer.asend(found.event, self.operation)
            raise found.problem

    def _screen(self, screening: Screening, run: Execute) -> None:
        """Report or refuse a request whose work is about to run. Raises `TooManyKeys` or `PossibleDuplicate`."""
        try:
            found = screening.screened(run)
            if found is not None:
                self._observer(found.event, self.operation)
        except BaseException:
            self.operation.abandon()
            screening.forget()
            raise
        if found is None or found.problem is None:
            return
        if run.attempt == 1:  # as if it had never come: sent again, it is a new key again
            self.operation.settle(WorkResult.DROPPED, ttl=0.0)
        else:
            self.operation.abandon()
        raise found.problem

    async def _ascreen(self, screening: Screening, run: Execute) -> None:
        """See _screen()."""
        try:
            found = await run_to_completion(sync_to_async(screening.screened)(run))
            if found is not None:
                await self._observer.asend(found.event, self.operation)
        except GeneratorExit:  # nothing can be awaited any more
            self.operation.abandon()
            screening.forget()
            raise
        except BaseException:
            await run_to_completion(self.operation.aabandon())
            await run_to_completion(sync_to_async(screening.forget)())
            raise
        if found is None or found.problem is None:
            return
        if run.attempt == 1:  # as if it had never come: sent again, it is a new key again
            await run_to_completion(self.operation.asettle(WorkResult.DROPPED, ttl=0.0))
        else:
            await run_to_completion(self.operation.aabandon())
        raise found.problem

    # ----------------------------------------------------------------------------------------------------- takeovers

    def _takeover(self, verdict: Verdict) -> Takeover | None:
        """Return what `on_takeover` must decide, if there is anything."""
        taken = self.policy.on_takeover is not None and isinstance(verdict, Execute) and verdict.takeover
        # In `atomic` nothing of the crashed owner is left. A hook of the settings is not for it.
        return Takeover(self.operation, self.request) if taken and self._leases else None

    def _decide(self, takeover: Takeover) -> TakeoverEnd | None:
        """Ask `on_takeover`. `None`: the view runs. If it raises, the record stays as it is, and is taken over again."""
        assert self.policy.on_takeover is not None, "see _takeover()"
        try:
            return self._end_of(ask(self.policy.on_takeover, takeover), takeover)
        except BaseException:
            self.operation.abandon()
            self._note()
            raise

    async def _adecide(self, takeover: Takeover) -> TakeoverEnd | None:
        """See _decide()."""
        assert self.policy.on_takeover is not None, "see _takeover()"
        try:
            return await sync_to_async(self._end_of)(await aask(self.policy.on_takeover, takeover), takeover)
        except GeneratorExit:  # nothing can be awaited any more
            self.operation.abandon()
            raise
        except BaseException:
            await run_to_completion(self.operation.aabandon())
            self._note()
            raise

    def _end_of(self, decision: Any, takeover: Takeover) -> TakeoverEnd | None:
        return end_of(decision, takeover, self.policy, finish=self._finish, limit=self._max_body)

    def _conclude_takeover(self, end: TakeoverEnd) -> HttpResponseBase:
        """Return the found response, as a later replay would return it. Raises `OperationHeld` or `ReplayRefused`."""
        if end.response is None:
            raise OperationHeld(headers=FINAL)
        self._authorize(end.outcome)
        self._count(TAKEN_OVER)
        found, response = HeaderStatus.REPLAYED, end.response
        if self.operation.left_as is not SettledState.COMPLETED:
            found = HeaderStatus.LOST
        elif end.outcome.body is not MISSING:
            response = rebuild(end.outcome, spoken=self._spoken, original=self._original)
        note(self.request, found, original=self._original)
        set_headers(found, response, self._spoken, original=self._original)
        return response

    def _count(self, outcome: str | None) -> None:
        if outcome is not None:
            counting.count(self.request, outcome, self.operation)

    def _authorize(self, outcome: Outcome) -> None:
        authorize = self.policy.authorize_replay
        if self._ask_again is not None:
            self._ask_again(authorized=authorize is not None)
        if authorize is not None and authorize(self.request, outcome) is not True:
            raise ReplayRefused
