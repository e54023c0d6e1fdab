"""One HTTP exchange under a key: what all doors do, in the order in which they do it.

A door decides *where* the guard stands. Everything else is here: who is asked, what is refused, what is stored.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, NoReturn

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.encoding import escape_uri_path

from .. import conf, switch
from ..core.policy import SAFE_METHODS, Policy, Resolved
from ..core.records import Guarantee, Outcome
from ..core.rules import Busy, Ending, Execute, Mismatch, Replay, Verdict
from ..engine import Operation
from ..errors import (
    ConfigurationError,
    DurableInsideGuard,
    InProgress,
    KeyMissing,
    ReplayRefused,
    RequestMismatch,
    ScopeRequired,
    StoreUnavailable,
)
from ..handles import Handle
from ..observing import Observer
from ..open_transactions import arefuse_open_transactions, refuse_open_transactions
from ..registry import store_of
from ..ticketing import issue
from .fingerprint import fingerprint
from .keys import carries_key, read_key, scope_of
from .responses import DEGRADED, capture, ending_of, rebuild, render
from .selection import Document, selected_key, warn_unguarded

_ATTRIBUTE = "_idempotency_exchange"


class Where(Enum):
    """Where a key is, if the header does not have it."""

    PAYLOAD = "payload"


Key = str | Literal[Where.PAYLOAD]


def key_of(request: HttpRequest, policy: Policy) -> Key | None:
    """Return the key to guard a request under, or `None` to let it run; cheap when there is none.

    `Where.PAYLOAD`: the policy selects it, which may read the body and is left to `Exchange.of()`. `None` for a safe
    method, a method outside the policy, a request that an outer door guards already, no key, and while idempotency is
    off. Raises `KeyMissing` and `KeyMalformed`.
    """
    method = request.method or ""
    if method in SAFE_METHODS or hasattr(request, _ATTRIBUTE):
        return None
    if not carries_key(request) and not conf.concerns_keyless(policy):
        return None
    if method not in {name.upper() for name in conf.field(policy, "methods")}:
        return None
    if not switch.enabled():
        from .unguarded import leave_unguarded  # it knows us

        leave_unguarded(request)
        return None
    key = read_key(request, conf.get("HEADER"))
    if key is None and conf.field(policy, "key") is not None:
        return Where.PAYLOAD
    if key is None:
        raise KeyMissing
    return key


def may_have_key(request: HttpRequest, policy: Policy) -> bool:
    """Does a request carry a key, or may its policy select one?"""
    return carries_key(request) or conf.field(policy, "key") is not None


def terms_of(policy: Policy) -> Resolved:
    """Return a policy with all its fields. Raises `ConfigurationError` when they and the settings contradict."""
    try:
        return conf.resolve(policy)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


class RequestIdempotency(Handle):
    """`request.idempotency` in a guarded view."""

    _ending: Ending | None = None

    def keep(self) -> None:
        """Remember this response, whatever its status. What a 5xx wrote is rolled back all the same."""
        self._ending = Ending.KEPT

    def drop(self) -> None:
        """Do not remember this response: the key is free again, for another body too."""
        self._ending = Ending.DROPPED


class Exchange:
    """A request that carries a key: `open()` it, and if that returns no answer run the view and `settle()` or `fail()`."""

    def __init__(
        self,
        request: HttpRequest,
        policy: Resolved,
        *,
        key: str,
        scope: str,
        document: Document,
        may_replay: Callable[[], bool] | None = None,
    ) -> None:
        # The request leads to us: held here, it would live on, with its uploads, until garbage is collected.
        self._request = weakref.ref(request)
        self.policy = policy
        self._may_replay = may_replay
        self._observer = Observer(request)
        self.degraded = False
        #: Set by a door that sees an exception only after it has become a response.
        self.raised: Exception | None = None
        store = store_of(policy)
        digest = fingerprint(document.source, policy, document)
        ticket = issue(policy, scope, key, digest, request.method or "", escape_uri_path(request.path))
        self.operation = Operation(
            store,
            ticket,
            self._observer,
            hold_failures=policy.guarantee is Guarantee.LEASE and policy.on_failure == "hold",
        )
        self.handle = RequestIdempotency(self.operation)

    @classmethod
    def of(
        cls,
        request: HttpRequest,
        policy: Resolved,
        *,
        key: Key,
        user: Any,
        source: Any,
        strict: bool = True,
        may_replay: Callable[[], bool] | None = None,
    ) -> Exchange | None:
        """Make the exchange of a keyed request. A key that belongs to nobody: `None`, or if `strict` `ScopeRequired`.

        Whoever sent no key is refused only where one is required, and gets `None` also when there is nothing to select
        it from. `source` is the request that the view sees (DRF's, or Django's), which parses the body as the view
        would. `may_replay` asks again what the view would have asked before a replay.
        """
        carried = "" if key is Where.PAYLOAD else key
        scope = scope_of(request, user, policy, carried)
        if scope is None:
            if strict and (carried or policy.required):
                raise ScopeRequired
            if strict:
                warn_unguarded(request, "nobody answers for it")
            return None
        document = Document(source, user)
        selected = carried or selected_key(document, policy)
        if selected is None:
            return None
        return cls(request, policy, key=selected, scope=scope, document=document, may_replay=may_replay)

    @property
    def request(self) -> HttpRequest:
        """The request, which whoever drives this exchange holds."""
        request = self._request()
        assert request is not None
        return request

    @property
    def atomic_alias(self) -> str | None:
        """Return the database whose transaction is ours while the view runs."""
        if self.degraded or self._leases:
            return None
        return self._record_alias

    @property
    def _leases(self) -> bool:
        return self.operation.ticket.guarantee is Guarantee.LEASE

    @property
    def _record_alias(self) -> str | None:
        """Return the database whose open transaction the record joins."""
        return getattr(self.operation.store, "using", None)

    # --------------------------------------------------------------------------------------------------------- open

    def open(self) -> HttpResponseBase | None:
        """Return the answer to give instead of the view's, or `None`: run the view.

        Raises `InProgress`, `RequestMismatch`, `ResponseNotStored`, `ReplayRefused` or `StoreUnavailable`; and
        `LeaseInTransaction` inside a transaction whose rollback the record would outlive.
        """
        if self._leases:
            refuse_open_transactions(but=self._record_alias)
        try:
            verdict = self.operation.open(wait=self._patience)
        except StoreUnavailable as error:
            self._go_without_store(error)
            return None
        return self._answer(verdict)

    async def aopen(self) -> HttpResponseBase | None:
        """See open()."""
        await arefuse_open_transactions(but=self._record_alias)
        try:
            verdict = await self.operation.aopen(wait=self._patience)
        except StoreUnavailable as error:
            await sync_to_async(self._go_without_store)(error)
            return None
        if isinstance(verdict, Replay):  # the project is asked, and may ask a database
            return await sync_to_async(self._answer)(verdict)
        return self._answer(verdict)

    @property
    def _patience(self) -> float:
        return self.policy.wait if self.policy.on_busy == "wait" else 0.0

    def _answer(self, verdict: Verdict) -> HttpResponseBase | None:
        match verdict:
            case Execute():
                self._mark()
                return None
            case Replay(outcome=outcome):
                self._authorize(outcome)
                return rebuild(outcome)
            case Busy(retry_after=retry_after):
                raise InProgress(headers={"Retry-After": str(retry_after)})
            case Mismatch():
                raise RequestMismatch

    def _authorize(self, outcome: Outcome) -> None:
        authorize = self.policy.authorize_replay
        if self._may_replay is not None and not self._may_replay():
            raise ReplayRefused
        if authorize is not None and authorize(self.request, outcome) is not True:
            raise ReplayRefused

    def _go_without_store(self, error: StoreUnavailable) -> None:
        self._observer("unavailable", self.operation, error)
        if self.policy.on_store_failure == "closed":
            raise error
        self.degraded = True
        self._mark()

    def _mark(self) -> None:
        self._may_replay = None  # it holds the request
        setattr(self.request, _ATTRIBUTE, self)
        self.request.idempotency = self.handle  # type: ignore[attr-defined]

    # ------------------------------------------------------------------------------------------------------- settle

    def _leave(self) -> None:
        """Take ourselves off a request that is over: who sends it through the view once more is guarded anew."""
        request = self._request()
        if request is not None and getattr(request, _ATTRIBUTE, None) is self:
            delattr(request, _ATTRIBUTE)

    def settle(self, response: HttpResponseBase) -> HttpResponseBase:
        """Remember or drop the view's answer, and return it. Raises what `Operation.settle` raises."""
        if self.degraded:
            self._leave()
            response[DEGRADED] = "true"
            return response
        try:
            ended, outcome = self._conclude(response)
        except BaseException as error:  # noqa: BLE001 - fail() raises it again
            self.fail(error)
        try:
            self.operation.settle(ended, outcome, ttl=self.handle.seconds)
        finally:
            self._leave()
        return response

    async def asettle(self, response: HttpResponseBase) -> HttpResponseBase:
        """See settle()."""
        if self.degraded:
            self._leave()
            response[DEGRADED] = "true"
            return response
        try:
            # The project's function, a file and a sync stream may ask a database, which an event loop refuses.
            asks = callable(self.policy.keep) or (response.streaming and not getattr(response, "is_async", False))
            ended, outcome = await sync_to_async(self._conclude)(response) if asks else self._conclude(response)
        except BaseException as error:  # noqa: BLE001 - afail() raises it again
            await self.afail(error)
        try:
            await self.operation.asettle(ended, outcome, ttl=self.handle.seconds)
        finally:
            self._leave()
        return response

    def _conclude(self, response: HttpResponseBase) -> tuple[Ending, Outcome | None]:
        if self.raised is not None:
            return Ending.FAILED, None
        if response.status_code >= 500:
            self.operation.give_up()  # also when the view keeps its 5xx: what it wrote goes
        ended = self.handle._ending or ending_of(self.request, response, self.policy)  # noqa: SLF001
        return ended, capture(response, self.policy) if ended is Ending.KEPT else None

    def fail(
        self, error: BaseException, *, committed: Callable[[], HttpResponseBase | None] = lambda: None
    ) -> NoReturn:
        """End an exchange whose view did not answer, and raise: its exception, or a clearer one.

        `committed` returns what it did answer, when only an `on_commit` callback failed: that is remembered, unless it
        cannot be finished.
        """
        self._leave()
        try:
            if (answer := committed()) is not None:
                render(answer)
        except Exception as unfinished:  # noqa: BLE001 - mostly what had failed
            answer, error = None, unfinished if isinstance(error, Exception) else error
        if answer is not None:
            self.settle(answer)
        elif not self.degraded:
            self.operation.settle(Ending.FAILED if isinstance(error, Exception) else Ending.CUT)
        raise clarified(error)

    async def afail(self, error: BaseException) -> NoReturn:
        """See fail()."""
        self._leave()
        if not self.degraded:
            await self.operation.asettle(Ending.FAILED if isinstance(error, Exception) else Ending.CUT)
        raise clarified(error)


def clarified(error: BaseException) -> BaseException:
    """Return our error for one of Django's that a guard has caused."""
    if isinstance(error, RuntimeError) and "durable atomic block cannot be nested" in str(error):
        clearer = DurableInsideGuard()
        clearer.__cause__ = error
        return clearer
    return error
