"""How an exchange ends: what is stored of a response, and what an exception that leaves the view becomes.

Nothing is written here: `settling` does.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from datetime import datetime, timezone

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core import conclusions
from ..core.conclusions import WorkResult
from ..core.failures import failed_with
from ..core.policy import Resolved
from ..core.records import Outcome
from ..engine.operation import Operation
from ..extensions import extended
from ..instrumentation.traces import traced
from ..runtime.registry import body_limit
from .atomic_requests import asks_for_transaction
from .handle import RequestIdempotency
from .raised import response_to, status_of
from .responses import capture, ending_of, render, wanted_by
from .spoken import spoken_to


class EndingExchange:
    """A keyed request, and how it ends."""

    #: Did the store not respond, and the policy let the request run without a guard?
    degraded = False
    #: Set by an entry point that sees an exception only after it has become a response.
    raised: Exception | None = None

    def __init__(
        self, request: HttpRequest, policy: Resolved, operation: Operation, *, non_atomic: AbstractSet[str]
    ) -> None:
        # The request refers to us: a strong reference would keep it, and its uploads, until garbage collection.
        self._request = weakref.ref(request)
        self.policy = policy
        self.operation = operation
        self.handle = extended(RequestIdempotency)(operation, policy)
        self.course = self.handle._course(self.handle)  # noqa: SLF001 - ours
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

    def weigh(self, response: HttpResponseBase, *, has_begun: bool) -> None:
        """Decide whether to store a response below 500 whose status does not say if its work has begun.

        The view's own decision and the policy's `keep` come first.
        """
        if self.degraded or self.handle._ending is not None or response.status_code >= 500:  # noqa: SLF001
            return
        wanted = wanted_by(self.policy, response)
        if wanted is None:
            wanted = conclusions.keeps_begun(has_begun=has_begun, needs_rollback=self.operation.needs_rollback())
        if wanted:
            self.handle.keep()
        else:
            self.handle.drop()

    def _conclude(self, response: HttpResponseBase) -> tuple[WorkResult, Outcome | None]:
        """Return how a view ends that responded, and what is stored of its response."""
        decided = self.course.decided()
        if decided is not None and decided.is_final:
            self.handle.seconds = decided.ttl
            return decided.work_result, decided.outcome
        raised = self.raised is not None
        ending = conclusions.response_ending(response.status_code, raised=raised, atomic_requests=self._atomic_requests)
        if not ending.commit:
            self.operation.set_rollback()
        if decided is not None:
            # It has given up: this is its last word, unless it is a problem of ours, or an error page.
            has_answer = ending.answers and self.course.problem is None
            last = traced(capture(response, self.policy, self._max_body)) if has_answer else decided.outcome
            return decided.work_result, last
        if not ending.answers or self.course.is_unfinished():
            return WorkResult.FAILED, _failure(self.raised, response.status_code)
        ended = self.handle._ending or ending_of(response, self.policy)  # noqa: SLF001
        if ended is WorkResult.FAILED:
            return ended, _failure(self.raised, response.status_code)
        return ended, traced(capture(response, self.policy, self._max_body)) if ended is WorkResult.KEPT else None

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

    def _end_after(self, error: BaseException) -> tuple[WorkResult, Outcome | None, float | None]:
        """Return how a view ends that raised, what is noted of that, and for how long."""
        if not isinstance(error, Exception):
            return WorkResult.CUT, None, None  # a cancelled one writes nothing
        return self.course.decided() or (WorkResult.FAILED, _failure(error, 500), None)


def refused_after_steps(response: HttpResponseBase) -> tuple[WorkResult, Outcome]:
    """Return how a refusal ends behind steps. The key is not free for another body: a retry continues after the steps."""
    return WorkResult.FAILED, _failure(None, response.status_code)


def _failure(error: Exception | None, status: int) -> Outcome:
    return failed_with(error, at=datetime.now(timezone.utc), status=status)
