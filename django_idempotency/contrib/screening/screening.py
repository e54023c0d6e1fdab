"""What is asked about a new key before its work runs: does its client make too many, and was the
same sent with another?

    claim ── is the key new? ── count it ── remember its facts ── the work ── settle: forget the facts if it failed
                                │           └ known with another key: reported, or refused
                                └ too many: refused, and the claim is undone

Both are kept in Django's cache, and only as HMACs. A cache that does not respond refuses nothing:
it is asked about more than idempotency promises, so the request goes on, and the log says so.

A claim decides whether a key is new, so neither replays nor duplicates count, and the count is
exact: its increment is one step of the cache. While a client is over its limit its keys are looked
up first, so that a flood writes no records.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any
from uuid import UUID

from django.core.cache import caches
from django.http import HttpRequest

from ... import conf
from ...core import rules
from ...core.conclusions import Ending, SettledState, WorkResult
from ...core.hashing import blinded
from ...core.policy import Resolved
from ...core.records import Ticket
from ...errors import ConfigurationError, PossibleDuplicate, Problem, StoreUnavailable, TooManyKeys
from ...http.call import Call
from ...http.counting import in_any_language
from ...http.responses import FINAL
from ...realms import realm_of
from ...stores.base import BaseStore
from ..selecting.selection import Document, selected_facts
from ..views import note_record

logger = logging.getLogger("django_idempotency")

#: Before the name of what is counted, and of what is remembered.
_COUNTED = "django_idempotency:"
_REMEMBERED = "django_idempotency:facts:"


#: How a record is left whose request may come again.
RELEASED = (SettledState.FREE, SettledState.BOUND, SettledState.FORGOTTEN)


class Screening:
    """Screens one request. Its methods ask a cache, so an event loop calls them in a thread."""

    #: Are the facts remembered as those of this key?
    _remembered = False

    def __init__(
        self,
        request: HttpRequest,
        policy: Resolved,
        record: UUID,
        *,
        counted: str | None,
        facts: str | None,
    ) -> None:
        # The request refers to its exchange, and that to us: see `Call`.
        self._http = weakref.ref(request)
        self._policy = policy
        self._record = record
        self._counted = counted
        self._facts = facts

    @property
    def _request(self) -> HttpRequest:
        request = self._http()
        assert request is not None, "its exchange is asked while it is served"
        return request

    def arrived(self, call: Call) -> None:
        """Raise `TooManyKeys` for a key that is new, if its client has made too many."""
        problem = self._flooded(call.operation.store)
        if problem is not None:
            call.operation.sink("flooded", call.operation)
            raise problem

    def claimed(self, call: Call, run: rules.Execute) -> None:
        """Report or refuse a request whose work is about to run.

        Raises `TooManyKeys` or `PossibleDuplicate`.
        """
        operation = call.operation
        try:
            event, problem = self._screened(run)
            if event:
                operation.sink(event, operation)
        except BaseException:
            operation.abandon()
            self.forget()
            raise
        if problem is None:
            return
        if run.attempt == 1:  # as if it had never come: sent again, it is a new key again
            operation.settle(Ending(WorkResult.DROPPED, ttl=0.0))
        else:
            operation.abandon()
        raise problem

    def ended(self, call: Call) -> None:
        """Forget the facts of a request that was refused or has failed: what did nothing is no
        suspect.
        """
        if call.operation.left_as in RELEASED or call.did_nothing:
            self.forget()

    def _flooded(self, store: BaseStore) -> TooManyKeys | None:
        """Refuse a new key of a client that has reached its limit, before it is claimed."""
        too_many = self._too_many(increment=False)
        if too_many is None:
            return None
        try:
            known = store.get(self._record)
        except StoreUnavailable:  # the claim meets it, too
            return None
        return None if known is not None and not rules.expired(known) else too_many

    def _screened(self, run: rules.Execute) -> tuple[str, Problem | None]:
        """Judge a claimed key whose work is about to run.

        Return an event to report, or "", and what to refuse it with.

        A crashed owner's key is not judged again: it is the same request. Its facts are remembered
        all the same, so that they are forgotten if this attempt fails.
        """
        if run.takeover:
            self._remember()
            return "", None
        if run.attempt == 1 and (too_many := self._too_many(increment=True)) is not None:
            return "flooded", too_many
        first = self._remember()
        if first is None:
            return "", None
        if self._policy.suspect_action != "refuse":
            return "suspected", None
        note_record(self._request, first)  # the problem names the first
        return "suspected", PossibleDuplicate(headers=FINAL)

    def forget(self) -> None:
        """Forget the facts of a request that has failed or was refused: a corrected one may have
        the same.
        """
        if not self._remembered:
            return
        self._remembered = False
        try:
            cache = caches[conf.get("CACHE")]
            if cache.get(self._facts) == self._record.hex:
                cache.delete(self._facts)
        except Exception as error:  # noqa: BLE001 - they end by themselves
            _report(error)

    def _remember(self) -> UUID | None:
        """Remember the facts as those of this key.

        Return the record whose facts they are already, if there is one.
        """
        if self._facts is None:
            return None
        mine = self._record.hex
        try:
            cache = caches[conf.get("CACHE")]
            # Between the two steps the facts of the other may end: then these are the first.
            for _ in range(2):
                if (
                    cache.add(self._facts, mine, self._policy.within)
                    or (other := cache.get(self._facts)) == mine
                ):
                    self._remembered = True
                    return None
                if other is not None:
                    return UUID(hex=other)
        except Exception as error:  # noqa: BLE001 - see the module
            _report(error)
        return None

    def _too_many(self, *, increment: bool) -> TooManyKeys | None:
        """Return the refusal of a client that makes too many new keys.

        `increment`: this is one, and is counted.
        """
        if self._counted is None or self._policy.fresh_keys is None:
            return None
        rates = map(str.strip, self._policy.fresh_keys.split(","))
        return next(
            filter(None, (self._beyond(rate, self._counted, increment) for rate in rates)), None
        )

    def _beyond(self, rate: str, counted: str, increment: bool) -> TooManyKeys | None:
        try:
            group = f"{_COUNTED}{_route(self._request)}"
            found = _library()(
                self._request, group=group, key=lambda *_: counted, rate=rate, increment=increment
            )
        except ConfigurationError:
            raise
        except Exception as error:  # noqa: BLE001 - see the module
            _report(error)
            return None
        if found is None:  # RATELIMIT_ENABLE = False
            return None
        if found["limit"] == 0:  # so it says that the cache has not counted
            _report(None)
            return None
        if found["count"] + (0 if increment else 1) <= found["limit"]:
            return None
        # The second that its window ends with belongs to it.
        return TooManyKeys(headers={"Retry-After": str(max(1, found["time_left"] + 1))})


def screening_of(policy: Resolved, document: Document, ticket: Ticket) -> Screening | None:
    """Return what screens a request under a policy, or `None`: it screens none.

    Raises `ConfigurationError`.
    """
    if policy.fresh_keys is None and policy.suspect is None:
        return None
    http = document.http
    secret = conf.derive_secret()
    counted = facts = None
    if policy.fresh_keys is not None:
        _library()
        by = policy.fresh_keys_by
        chosen = None if by is None else selected_facts(document, by, "fresh_keys_by")
        whose = ticket.scope if chosen is None else (realm_of(policy, http) or "")
        counted = blinded(secret, "fresh keys", whose.encode(), chosen or b"")
    if policy.suspect is not None:
        chosen = selected_facts(document, policy.suspect, "suspect")
        if chosen is not None:
            about = (ticket.scope, ticket.method, in_any_language(http, ticket.path))
            facts = _REMEMBERED + blinded(
                secret, "facts", *(part.encode() for part in about), chosen
            )
    return Screening(http, policy, ticket.id, counted=counted, facts=facts)


def _route(request: HttpRequest) -> str:
    """Name the route of a request: its path has the ids of what it is about."""
    found: str | None = getattr(request.resolver_match, "route", None)
    return in_any_language(request, request.path if found is None else found)


def _library() -> Any:
    """Return django-ratelimit's counter. Raises `ConfigurationError` if it is not installed."""
    try:
        from django_ratelimit.core import get_usage
    except ImportError as error:
        raise ConfigurationError(
            "Policy(fresh_keys=…) counts by django-ratelimit. Type python -m pip install "
            '"django-idempotency[throttle]".'
        ) from error
    return get_usage


def _report(error: Exception | None) -> None:
    """Log that the cache did not respond, so that a request goes on unscreened."""
    facts = {"event": "unscreened", "error": type(error).__name__ if error else None}
    logger.warning(
        "Unscreened: the cache did not respond.", extra={"idempotency": facts}, exc_info=error
    )
