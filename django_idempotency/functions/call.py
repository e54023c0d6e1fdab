"""The plan of a guarded function, made once of its terms and the settings; and one of its calls
under a key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

from .. import conf
from ..core.canonical import UnhashableValue, canonical_bytes, digest, is_missing
from ..core.hashing import record_id, request_digest
from ..core.policy import async_contradiction
from ..core.records import CALL_METHOD, Guarantee
from ..core.rules import UNBOUND, Verdict
from ..engine.bracket import GuardedCall
from ..engine.extensions import Details
from ..engine.lease import LeaseOperation
from ..engine.operation import AtomicOperation, Operation
from ..engine.threads import shares_thread
from ..errors import (
    CalledItself,
    ConfigurationError,
    IdempotencyError,
    KeyMissing,
    LeaseInTransaction,
    UnhashablePayload,
)
from ..instrumentation.meters import Source, meters
from ..instrumentation.observer import Observer
from ..instrumentation.outcomes import MISSING, UNKEYED, count, outcome_of_verdict
from ..instrumentation.repeats import repeats
from ..runtime.app_extensions import extended
from ..runtime.current_step import EXECUTION
from ..runtime.handle import Course, has_course
from ..runtime.registry import body_limit, issuing, store_of
from ..runtime.transactions import refuse_open_transactions
from ..scopes import SAID
from .current import CURRENT, CurrentOperation, living
from .terms import FunctionTerms
from .wording import key_named, worded

logger = logging.getLogger("django_idempotency")


class Plan:
    """What a function's terms and the settings say of all its calls. Raises what is wrong with
    them.
    """

    def __init__(self, terms: FunctionTerms) -> None:
        self.terms = terms
        self.policy = policy = terms.resolved()
        self.leases = policy.guarantee is Guarantee.LEASE
        if terms.is_async and not self.leases:
            raise ConfigurationError(async_contradiction(terms.name, fix='Type guarantee="lease".'))
        self.store = store_of(policy)
        #: Do its async calls use the thread of the request? The project's own code may query the
        #: ORM when a result is stored or loaded.
        self.thread_sensitive = terms.asks_project or shares_thread(self.store)
        #: The longest result that is stored (bytes).
        self.max_body = body_limit(policy, self.store)
        self.kept = terms.kept
        self.handle = extended(CurrentOperation)
        #: May an optional app say how a work ends?
        self.has_course = has_course(self.handle)
        self.ticket = issuing(
            policy, method=CALL_METHOD, path=terms.name[:255], request_id=terms.validated_by
        )
        #: The scope of its keys, where the policy names no realm.
        self.scope = terms.own_scope if policy.realm is None else None
        #: The labels of its figures; `None`: nothing is measured.
        self.source = source_of(terms) if meters.active else None
        counter = repeats if conf.get("COUNT_REPLAYS") else None
        self.observer = Observer(source=self.source, counter=counter)


#: Returns the plan of a function under the current settings. Raises what is wrong with them.
plan_of = conf.compiled(FunctionTerms, Plan)


def source_of(terms: FunctionTerms) -> Source:
    """Return what the figures of a function's calls are labelled with."""
    return Source(entry_point="function", route=terms.name, store=terms.resolved().store)


def key_of(terms: FunctionTerms, payload: Any) -> str | None:
    """Return the key of a payload, the digest of what is selected from it; `None` if it has none.

    Raises `UnhashablePayload` for values that cannot be hashed, and anything that the selector
    raises.
    """
    try:
        if terms.key is None or terms.select is None:
            # When all arguments are the key, their number counts: many default to `None`.
            missing = (
                not payload if terms.arguments.only is None else is_missing(payload, parts=False)
            )
            return None if missing else digest(payload, terms.algorithm)
        selected = terms.select(payload)
        return None if terms.key.is_missing(selected) else digest(selected, terms.algorithm)
    except UnhashableValue as error:
        raise UnhashablePayload(f"{terms.name}: {error}") from error


def best_effort_key(terms: FunctionTerms, payload: Any) -> str:
    """Return the key of a payload while idempotency is off; a new one if it has none."""
    key = None
    with suppress(IdempotencyError):
        key = key_of(terms, payload)
    return key or uuid4().hex


def go_without_key(terms: FunctionTerms) -> None:
    """Report a call without a key, which runs unguarded.

    Raises `KeyMissing` if a key is required.
    """
    required = terms.resolved().required is True
    if meters.active:
        meters.request(source_of(terms), MISSING if required else UNKEYED)
    if required:
        raise KeyMissing(
            f"This call of {terms.name} has no idempotency key: its {key_named(terms)} is "
            "missing, or part of it. Pass it."
        )
    logger.warning(
        "%s runs unguarded: its %s is missing, or part of it.", terms.name, key_named(terms)
    )


def _digest_of(terms: FunctionTerms, payload: Any) -> bytes:
    """Return the digest of what `validate` selects, which must not change for a key.

    Raises `UnhashablePayload`.
    """
    assert terms.validate is not None
    try:
        return request_digest(b"call", canonical_bytes(terms.validate(payload)))
    except UnhashableValue as error:
        raise UnhashablePayload(f"{terms.name}: {error}") from error


class FunctionCall(GuardedCall[Any]):
    """A call that has a key. `running` opens and ends it, by what `endings` says."""

    #: What the work sees, once it runs; or `on_takeover`.
    current: CurrentOperation
    #: Is its result that of an earlier call?
    replayed = False
    #: Did the store not respond, and the policy let the call run without a guard?
    degraded = False
    #: May `current` be current? It is left then, wherever an interrupt has cut the call.
    _runs = False
    _course: Course | None = None

    def __init__(
        self,
        plan: Plan,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        payload: Any,
        key: str,
        *,
        reports: bool = True,
    ) -> None:
        self.plan = plan
        self.args = args
        self.kwargs = kwargs
        self.payload = payload
        self.patience = plan.policy.wait
        self.terms = terms = plan.terms
        self.thread_sensitive = plan.thread_sensitive
        #: Is its failure reported to somebody who can make it again? Otherwise it is left as one
        #: that has crashed.
        self.reports = reports
        if plan.leases:
            try:
                refuse_open_transactions()
            except LeaseInTransaction as error:
                raise worded(error, terms)  # noqa: B904 - itself
        scope = (
            plan.scope
            if plan.scope is not None and SAID.get() is None
            else terms.scope_under(plan.policy)
        )
        ticket = plan.ticket(
            id=record_id(scope, key),
            scope=scope,
            key=key,
            digest=UNBOUND if terms.validate is None else _digest_of(terms, payload),
            owner=uuid4(),  # from the operating system: neither a fork nor a snapshot repeats it
            now=datetime.now(timezone.utc),
        )
        self.execution = EXECUTION.get()
        operates: Callable[..., Operation] = AtomicOperation
        if plan.leases:
            operates = LeaseOperation if self.execution is None else self.execution.operation
        self.operation = operates(
            plan.store, ticket, plan.observer, on_failure=plan.policy.on_failure
        )
        #: The call as its extensions see it; `None`: it has none.
        self.details: Details | None = None
        if plan.policy.extensions:
            self.details = Details(self.operation, plan.policy)
            self.looks_before = True
        self.outer: CurrentOperation | None = None
        current = CURRENT.get()
        if isinstance(current, CurrentOperation):
            self.outer = living(current)
            if self.outer is not None and self.outer.holds(self.operation):
                raise self.naming(CalledItself())

    def close(self) -> None:
        try:
            self.operation.close()
        finally:
            if self._runs:
                self.current._leave()  # noqa: SLF001 - ours

    @property
    def course(self) -> Course:
        """The course of what runs, as far as that decides the end."""
        if self._course is None or self._course.handle is not self.current:
            self._course = self.current._course(self.current)  # noqa: SLF001 - ours
        return self._course

    def count(self, verdict: Verdict) -> None:
        """Count a call that runs, or whose stored result is returned."""
        if (
            self.plan.source is not None
            and (outcome := outcome_of_verdict(verdict, self.operation)) is not None
        ):
            count(self.plan.source, outcome, self.operation)

    def naming(self, error: IdempotencyError) -> IdempotencyError:
        """Set the record on an error, and let it speak of this function, unless the error belongs
        to another call.
        """
        if error.key is None:
            ticket = self.operation.ticket
            error.scope = ticket.scope
            error.key = ticket.key
            return worded(error, self.terms)
        return error
