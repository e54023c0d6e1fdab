"""One HTTP exchange under a key: what all doors do, in the order in which they do it.

A door decides *where* the guard stands. Everything else is here: who is asked, what is refused, what is stored.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, NoReturn

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.encoding import escape_uri_path

from .. import conf
from ..core.digest import record_id
from ..core.policy import SAFE_METHODS, Duration, Policy, seconds
from ..core.records import Guarantee, Outcome, Ticket
from ..core.rules import Busy, Ending, Execute, Mismatch, Replay, Verdict
from ..derivation import current_secret_id, derive
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
from ..observing import Observer
from ..registry import stores
from .fingerprint import fingerprint
from .keys import carries_key, read_key, scope_of
from .responses import DEGRADED, capture, ending_of, rebuild, render

_ATTRIBUTE = "_idempotency_exchange"


def key_of(request: HttpRequest, policy: Policy) -> str | None:
    """Return the key to guard a request under, or `None` to let it run; cheap when there is none.

    `None` for a safe method, a method outside the policy, a request that an outer door guards already, and no key.
    Raises `KeyMissing` and `KeyMalformed`.
    """
    method = request.method or ""
    if method in SAFE_METHODS or hasattr(request, _ATTRIBUTE):
        return None
    if not carries_key(request) and not conf.field(policy, "required"):
        return None
    if method not in {name.upper() for name in conf.field(policy, "methods")}:
        return None
    key = read_key(request, conf.get("HEADER"))
    if key is None:
        raise KeyMissing
    return key


def terms_of(policy: Policy) -> Policy:
    """Return a policy with all its fields. Raises `ConfigurationError` when they and the settings contradict."""
    try:
        return conf.resolve(policy)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


class RequestIdempotency:
    """`request.idempotency` in a guarded view."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._ending: Ending | None = None
        self._ttl: float | None = None

    @property
    def key(self) -> str:
        """The client's key, unquoted."""
        return self._operation.ticket.key

    @property
    def attempt(self) -> int:
        """Which run this is. Above 1, an earlier one failed, was refused or crashed."""
        return self._operation.attempt

    def derive(self, label: str) -> str:
        """Return a key to send on to a provider: 64 hex digits, the same for this label at every attempt."""
        return derive(self._operation, label)

    @property
    def lost(self) -> bool:
        """Has a `lease` ended under this run? Another may run by now: stop where that is still of use."""
        return self._operation.is_lost()

    def keep(self) -> None:
        """Remember this response, whatever its status. What a 5xx wrote is rolled back all the same."""
        self._ending = Ending.KEPT

    def drop(self) -> None:
        """Do not remember this response: the key is free again, for another body too."""
        self._ending = Ending.DROPPED

    @property
    def ttl(self) -> Duration | None:
        """How long this response is remembered, from its completion; `None`: as the policy says, from the claim."""
        return self._ttl

    @ttl.setter
    def ttl(self, value: Duration) -> None:
        self._ttl = seconds(Policy(ttl=value).ttl)  # raises ValueError for what is no such duration


class Exchange:
    """A request that carries a key: `open()` it, and if that returns no answer run the view and `settle()` or `fail()`.

    `source` is the request that the view sees (DRF's, or Django's), which parses the body as the view would.
    """

    def __init__(
        self,
        request: HttpRequest,
        policy: Policy,
        *,
        key: str,
        scope: str,
        source: Any,
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
        guarantee = Guarantee(policy.guarantee)
        store = stores[policy.store]
        if guarantee is Guarantee.ATOMIC and not store.supports_atomic:
            raise ConfigurationError(
                f'The store {policy.store!r} cannot keep "atomic". Type guarantee="lease", or name an ORM store.'
            )
        ticket = Ticket(
            id=record_id(scope, key),
            scope=scope,
            key=key,
            digest=fingerprint(source, policy),
            owner=uuid.uuid4(),
            now=datetime.now(timezone.utc),
            lease=seconds(conf.lease_of(policy)),
            ttl=seconds(policy.ttl),
            guarantee=guarantee,
            secret_id=current_secret_id(),
            method=request.method or "",
            path=escape_uri_path(request.path)[:255],
        )
        self.operation = Operation(
            store,
            ticket,
            self._observer,
            hold_failures=guarantee is Guarantee.LEASE and policy.on_failure == "hold",
        )
        self.handle = RequestIdempotency(self.operation)

    @classmethod
    def of(
        cls,
        request: HttpRequest,
        policy: Policy,
        *,
        key: str,
        user: Any,
        source: Any,
        strict: bool = True,
        may_replay: Callable[[], bool] | None = None,
    ) -> Exchange | None:
        """Make the exchange of a keyed request. A key that belongs to nobody: `None`, or if `strict` `ScopeRequired`.

        `may_replay` asks again what the view would have asked before a replay.
        """
        scope = scope_of(request, user, policy, key)
        if scope is None:
            if strict:
                raise ScopeRequired
            return None
        return cls(request, policy, key=key, scope=scope, source=source, may_replay=may_replay)

    @property
    def request(self) -> HttpRequest:
        """The request, which whoever drives this exchange holds."""
        request = self._request()
        assert request is not None
        return request

    @property
    def atomic_alias(self) -> str | None:
        """Return the database whose transaction is ours while the view runs."""
        if self.degraded or self.operation.ticket.guarantee is not Guarantee.ATOMIC:
            return None
        return getattr(self.operation.store, "using", None)

    # --------------------------------------------------------------------------------------------------------- open

    def open(self) -> HttpResponseBase | None:
        """Return the answer to give instead of the view's, or `None`: run the view.

        Raises `InProgress`, `RequestMismatch`, `ResponseNotStored`, `ReplayRefused` or `StoreUnavailable`.
        """
        try:
            verdict = self.operation.open(wait=self._patience)
        except StoreUnavailable as error:
            self._go_without_store(error)
            return None
        return self._answer(verdict)

    async def aopen(self) -> HttpResponseBase | None:
        """See open()."""
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
        return seconds(self.policy.wait) if self.policy.on_busy == "wait" else 0.0

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

    def settle(self, response: HttpResponseBase) -> HttpResponseBase:
        """Remember or drop the view's answer, and return it. Raises what `Operation.settle` raises."""
        if self.degraded:
            response[DEGRADED] = "true"
            return response
        try:
            ended, outcome = self._conclude(response)
        except BaseException as error:  # noqa: BLE001 - fail() raises it again
            self.fail(error)
        self.operation.settle(ended, outcome, ttl=self.handle._ttl)  # noqa: SLF001 - the handle is our other half
        return response

    async def asettle(self, response: HttpResponseBase) -> HttpResponseBase:
        """See settle()."""
        if self.degraded:
            response[DEGRADED] = "true"
            return response
        try:
            ended, outcome = self._conclude(response)
        except BaseException as error:  # noqa: BLE001 - afail() raises it again
            await self.afail(error)
        await self.operation.asettle(ended, outcome, ttl=self.handle._ttl)  # noqa: SLF001
        return response

    def _conclude(self, response: HttpResponseBase) -> tuple[Ending, Outcome | None]:
        if self.raised is not None:
            return Ending.FAILED, None
        if response.status_code >= 500:
            self.operation.give_up()  # also when the view keeps its 5xx: what it wrote goes
        ended = self.handle._ending or ending_of(self.request, response, self.policy)  # noqa: SLF001
        return ended, capture(response, self.policy) if ended is Ending.KEPT else None

    def fail(self, error: BaseException, *, committed: HttpResponseBase | None = None) -> NoReturn:
        """End an exchange whose view did not answer, and raise: its exception, or a clearer one.

        `committed` is what it did answer, when only an `on_commit` callback failed: that is remembered.
        """
        if committed is not None:
            render(committed)
            self.settle(committed)
        elif not self.degraded:
            self.operation.settle(Ending.FAILED if isinstance(error, Exception) else Ending.CUT)
        raise clarified(error)

    async def afail(self, error: BaseException) -> NoReturn:
        """See fail()."""
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
