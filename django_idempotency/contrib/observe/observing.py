"""`mode=OBSERVE`: the view runs as it would without us, and what a guard would have done is
reported.

    watch ── the view, unguarded ── conclude: who sent it? is it the same request? was its key known? ── report

Whatever could change the response comes after the view: to find the user (the response would vary
by cookie), to parse the body (the view may choose its upload handlers first), to ask the store.
Only a short body is buffered before, since the view would consume it. What fails is reported, and
changes nothing.

The key is recorded after the view, too, and never while a transaction is open: no other request
ever waits for it. The record is one of the store's like any other, but for two things. It lies
under a scope of its own (`scopes.observed`), which no guard asks for, so it cannot be replayed once
the policy enforces. And it has no body.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from django.http import HttpRequest
from django.http.request import RawPostDataException
from django.http.response import HttpResponseBase

from ... import conf
from ...api import BaseStore, Guarantee, Outcome, Record, Resolved, SettledState, Ticket
from ...api.requests import fits, is_in_memory, require_bounded
from ...core import conclusions, rules
from ...core.conclusions import Rollback, WorkResult
from ...core.hashing import derived_key, first_operation, record_id
from ...core.records import MISSING
from ...core.rules import Execute, Replay, Verdict
from ...core.statuses import HeaderStatus
from ...engine.operation import Operation
from ...errors import LeaseInTransaction, Problem, ResponseNotStored, StoreUnavailable
from ...http import counting
from ...http.admission import Key, Where, identify
from ...http.bodies import is_form_parsed, is_read
from ...http.call import ending_of
from ...http.exchange import RequestIdempotency, hand_out, note, noted_of, stamp
from ...http.plan import Plan
from ...http.problems import refusal_of
from ...http.responses import is_buffered, is_private, wanted_by
from ...http.selection import asks_request
from ...http.unguarded import readable_key, report_unguarded
from ...instrumentation.observer import log_request
from ...instrumentation.outcomes import OBSERVED
from ...runtime.app_extensions import extended
from ...runtime.derivation import Unstored
from ...runtime.registry import body_limit, issuing, store_of
from ...runtime.transactions import refuse_open_transactions
from ...scopes import observed
from ...signals import EVENTS

#: Seconds for which a store that did not respond is left alone, so that it delays few responses.
PAUSE = 10.0
#: By how much a store's clock and a host's stopwatch may disagree about a moment: SQLite counts
#: milliseconds.
GRAIN = timedelta(milliseconds=10)

#: What a guard would have done, if it would not have responded with a problem: then it is the
#: problem's code.
RUN = "run"  # run the view, as happened
REPLAY = "replay"  # return the first response: the view has run twice
UNKNOWN = (
    "unknown"  # nothing speaks against the request; whether its key was known could not be asked
)
ERROR = "error"  # raise: a setting, or a function of the project, is wrong

#: The store → when it did not respond (monotonic).
_silent: weakref.WeakKeyDictionary[BaseStore, float] = weakref.WeakKeyDictionary()


class Observation:
    """One observed request. It holds the request weakly, since the request refers to it."""

    _ticket: Ticket | None = None

    def __init__(
        self,
        request: HttpRequest,
        plan: Plan | None,
        *,
        refusal: Exception | None,
        source: Any = None,
        **known: Any,
    ) -> None:
        """`known`: what `identify()` takes besides."""
        self.plan = plan
        self.refusal = refusal
        self.request = weakref.ref(request)
        self.source = weakref.ref(source or request)
        self.key: Key | None = known.get("key")
        self._known = known
        self.began = time.monotonic()

    @property
    def policy(self) -> Resolved:
        """The policy. Raises the refusal of a request that has none."""
        if self.plan is None:
            raise self.refusal or TypeError("An observation has a plan or a refusal.")
        return self.plan.terms

    def ticket(self) -> Ticket | None:
        """Return the ticket that a guard would claim with; `None` for a request that it would let
        run unguarded.

        Raises what `identify()` and `Identity.ticket()` raise, and `NotRead`.
        """
        request = self.request()
        source = self.source()
        if (
            self._ticket is None
            and self.key is not None
            and request is not None
            and source is not None
        ):
            policy = self._policy_for(request)
            identity = identify(request, policy, source=source, **self._known)
            self._ticket = None if identity is None else identity.ticket(policy, issuing(policy))
        return self._ticket

    def _policy_for(self, request: HttpRequest) -> Resolved:
        """Return the policy, without its fingerprint if the body is neither in memory nor a parsed
        form.
        """
        policy = self.policy
        compares = policy.fingerprint != "headers" and not asks_request(policy.fingerprint)
        if policy.fingerprint != "headers":
            require_bounded(request, policy.max_request_body)
        if is_in_memory(request) or is_form_parsed(request):
            return policy
        if self.key is Where.PAYLOAD and not asks_request(policy.key):
            raise NotRead
        return replace(policy, fingerprint="headers") if compares else policy

    def judge(self, request: HttpRequest, response: HttpResponseBase) -> str | None:
        """Say what a guard would have done: one of the words above, or a problem's code.

        `None`: run it unguarded.

        Raises any problem that the guard would have responded with, and what the project's
        functions raise.
        """
        if self.refusal is not None:
            raise self.refusal
        try:
            ticket = self.ticket()
            store = store_of(self.policy)
            refuse_open_transactions()
        except (NotRead, RawPostDataException, LeaseInTransaction):
            return UNKNOWN
        if ticket is None:
            return None
        if time.monotonic() - _silent.get(store, float("-inf")) < PAUSE:
            return UNKNOWN
        try:
            verdict = self._record(store, ticket, request, response)
        except StoreUnavailable:
            _silent[store] = time.monotonic()
            raise
        match verdict:
            case Execute():
                return RUN
            case Replay(outcome=outcome):
                return ResponseNotStored.code if outcome.body is MISSING else REPLAY
            case refused:
                return refusal_of(refused).code

    def _record(
        self, store: BaseStore, ticket: Ticket, request: HttpRequest, response: HttpResponseBase
    ) -> Verdict:
        """Record how the request ended, and return what a guard would have decided before it
        ran.
        """
        scope = observed(ticket.scope)
        ticket = ticket._replace(
            scope=scope, id=record_id(scope, ticket.key), guarantee=Guarantee.LEASE
        )
        took = time.monotonic() - self.began
        record = store.claim(ticket)
        verdict = foreseen(record, ticket, took=took)
        if isinstance(verdict, Execute):
            handle: RequestIdempotency = request.idempotency  # type: ignore[attr-defined]
            state = conclusions.conclude(
                self._ending(request, response, handle), Rollback.NONE
            ).state
            outcome = self._outcome(store, response) if state is SettledState.COMPLETED else None
            ttl = handle.seconds
            settlement = conclusions.settlement(
                state, ticket, verdict, fence=record, outcome=outcome, ttl=ttl
            )
            if settlement is not None:
                store.settle(ticket._replace(location=record.location), settlement)
        return verdict

    def _ending(
        self, request: HttpRequest, response: HttpResponseBase, handle: RequestIdempotency
    ) -> WorkResult:
        if response.status_code < 500 and handle._ending is not None:  # noqa: SLF001
            return handle._ending  # noqa: SLF001
        try:
            return ending_of(response, self.policy)
        except Exception:  # noqa: BLE001 - the project's `keep` may read a body that is not rendered yet
            return conclusions.classify_status(
                response.status_code, remembers=self.policy.profile.remembers
            )

    def weigh(self, response: HttpResponseBase, *, has_begun: bool, reports_failure: bool) -> None:
        """See `Call.weigh()`. Never raises."""
        handle = getattr(self.request(), "idempotency", None)
        with suppress(Exception):  # the project's `keep`
            if (
                handle is not None
                and handle._ending is None  # noqa: SLF001 - ours
                and wanted_by(self.policy, response) is None
            ):
                kept = conclusions.keeps_begun(has_begun=has_begun, needs_rollback=False)
                (handle.keep if kept else handle.drop)()

    def _outcome(self, store: BaseStore, response: HttpResponseBase) -> Outcome:
        kept = is_storable(response, self.policy, body_limit(self.policy, store))
        return Outcome(response.status_code, (), b"" if kept else MISSING)


def is_storable(response: Any, policy: Resolved, limit: int) -> bool:
    """Would `capture()` store the body, as far as can be told without reading a stream or
    rendering?
    """
    if not policy.store_body:
        return False
    limit = 0 if is_private(response) else limit
    if response.streaming:
        return is_buffered(response, policy, limit)
    return not getattr(response, "is_rendered", True) or len(response.content) <= limit


class NotRead(Exception):
    """The key is selected from a body that is too long to be buffered, and the view has not kept
    it.
    """


class Observed(Unstored):
    """What an observed view runs under: `request.idempotency` works at it."""

    def __init__(self, observation: Observation) -> None:
        super().__init__("observed", uuid4().hex)
        self._observation = observation

    @property
    def key(self) -> str:
        """The key that a guard would use; a new one if the request has no valid key."""
        if isinstance(self._observation.key, str):
            return self._observation.key
        ticket = self._ticket()
        return super().key if ticket is None else str(ticket.key)

    def derived(self, label: str) -> str:
        """Return what a guard would derive if the key were new; another in each request if it would
        not guard it.
        """
        ticket = self._ticket()
        if ticket is None:
            return super().derived(label)
        secret = conf.derive_secret()
        operation = first_operation(ticket)
        return derived_key(
            secret,
            label,
            scope=ticket.scope,
            key=ticket.key,
            operation=operation,
            request=ticket.digest,
        )

    def _ticket(self) -> Ticket | None:
        with suppress(Exception):  # conclude() reports it
            return self._observation.ticket()
        return None


class Observer:
    """The mode of a policy that guards nothing, and reports what a guard would have done."""

    def __repr__(self) -> str:
        return "OBSERVE"

    def watch(
        self,
        request: HttpRequest,
        plan: Plan | None,
        *,
        refusal: Exception | None = None,
        **known: Any,
    ) -> None:
        """Begin to observe a request whose view runs next. Never raises.

        `refusal`: what a guard would raise. The plan, which may not compile, is not needed then.
        For the rest see `identify()`.
        """
        _watch(request, plan, refusal, known)


OBSERVE = Observer()


def _watch(
    request: HttpRequest, plan: Plan | None, refusal: Exception | None, known: dict[str, Any]
) -> None:
    observation = Observation(request, plan, refusal=refusal, **known)
    note(request, HeaderStatus.OBSERVED)
    counting.count(request, OBSERVED)
    exchange = hand_out(request, extended(RequestIdempotency)(Observed(observation)))
    exchange.concluding = partial(_report, observation)
    if refusal is None and not is_read(request):
        with suppress(Exception):  # the view meets it, too
            if fits(request):
                request.body  # noqa: B018 - Django caches the body


def observation_of(request: HttpRequest) -> Observation | None:
    """Return the observation of a request whose view runs."""
    exchange = noted_of(request)
    concluding = None if exchange is None else exchange.concluding
    return concluding.args[0] if isinstance(concluding, partial) else None


#: What a guard would have done → the level of its record, if not WARNING.
LEVELS = {
    "run": logging.DEBUG,
    "replay": logging.INFO,
    "in-progress": logging.INFO,
    "error": logging.ERROR,
}


def _notify(request: HttpRequest, would: str, error: Exception | None) -> None:
    """Report what a guard would have done, by a signal and a log record."""
    signal = EVENTS["observed"]
    log_request(
        signal, LEVELS.get(would, signal.level), request, would, would, readable_key(request), error
    )
    if signal.receivers:
        signal.send_robust(
            sender=Operation, operation=None, request=request, error=error, reason=would
        )


def _report(observation: Observation, request: HttpRequest, response: HttpResponseBase) -> None:
    """Report what a guard would have done about a request. Never raises."""
    error: Exception | None = None
    with _session_as_it_was(request):
        try:
            would = observation.judge(request, response)
        except Problem as problem:
            would = problem.code
        except Exception as raised:  # noqa: BLE001 - the project's functions are asked
            would = ERROR
            error = raised
    if would is None:
        report_unguarded(request)
        stamp(request, response)
    else:
        _notify(request, would, error)


def foreseen(record: Record, ticket: Ticket, *, took: float) -> Verdict:
    """Say what a guard would have decided about a request that has run without one.

    `record` is what its claim found, after a run that `took` so many seconds. If another run has
    completed in between, the two were under way at the same time, and the guard would have found
    that one running.
    """
    verdict = rules.read(record, ticket)
    if isinstance(verdict, Replay) and record.completed_at is not None:
        began = record.read_at - timedelta(seconds=took)
        if record.completed_at > began + GRAIN:
            return rules.Busy(retry_after=1)
    return verdict


@contextmanager
def _session_as_it_was(request: HttpRequest) -> Iterator[None]:
    """Hide that we have read the session: SessionMiddleware would let the response vary by
    cookie.
    """
    session = vars(request).get("session")
    accessed = getattr(session, "accessed", None)
    try:
        yield
    finally:
        if accessed is not None:
            session.accessed = accessed  # type: ignore[union-attr]
