"""A route's plan: all that its policy and the settings say about a request, compiled once.

A request only executes it: it reads no setting. A plan is compiled again when the settings change,
as Django's signal `setting_changed` says: see `conf.compiled()`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from django.http import HttpRequest

from .. import conf
from ..core.key_formats import ANY, ISSUED, KeyFault, described, spelled
from ..core.policy import (
    ENFORCE,
    FIELDS,
    Observing,
    Policy,
    Resolved,
    profile_contradiction,
    seconds,
)
from ..core.records import Guarantee, Ticket, UnprintedText
from ..errors import ConfigurationError, KeyAhead, KeyExpired, KeyMalformed
from ..runtime.app_extensions import extended
from ..runtime.handle import has_course
from ..runtime.registry import body_limit, issuing, store_of
from ..stores.base import BaseStore
from .exchange import RequestIdempotency, Spoken
from .exemptions import Pattern, exemptions, policies

if TYPE_CHECKING:
    from ..instrumentation.repeats import RepeatCounter

#: A policy that leaves everything to the settings.
ANY_POLICY = Policy()
#: The middleware's, for views that no entry of ROUTES names.
EVERY_VIEW = Policy()


class Plan:
    """The plan of the routes that have one policy.

    What decides whether a request asks for a guard is compiled at once, and so is the policy, so
    that no request runs under one that contradicts the settings: that raises `ConfigurationError`,
    and settings that are wrong `ImproperlyConfigured`. The rest is compiled for the first request
    that asks, or by `manage.py check`.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        #: Id of a callback, and method → what the middleware knows of it: `views.PlannedRoute`. By
        #: identity: a proxy is equal to what it is around.
        self.routes: dict[tuple[int, str], Any] = {}
        #: The entries of ROUTES, with the policies of other plans: each request to be asked about
        #: by `at()`.
        self.routed: Sequence[tuple[Pattern, Policy]] = ()
        if policy is EVERY_VIEW and conf.get("ROUTES"):
            self.routed = policies()
        self.profile = profile = conf.profile_of(policy.profile)
        self.spoken = Spoken(profile)
        #: The name of the key's header in `request.META`; "": the key is not in a header.
        self.header = conf.meta_name(profile.field) if profile.carrier == "header" else ""
        self.in_body = profile.carrier == "body"
        self.methods = frozenset(name.upper() for name in conf.field(policy, "methods"))
        self.required = conf.field(policy, "required")
        self.selects = conf.field(policy, "key") is not None
        mode = conf.by_path("mode", conf.field(policy, "mode"))
        #: What watches its requests, which run without a guard; `None`: they are guarded.
        self.observer: Observing | None = None if mode == ENFORCE else mode
        if not hasattr(mode, "watch") and mode != ENFORCE:
            raise ConfigurationError(f"mode is {FIELDS['mode'].expected}, not {mode!r}.")
        #: Is a key not used as it was sent?
        self.respells = conf.field(policy, "key_format") != ANY
        #: Most plans: a request without the header asks for nothing.
        self.asks_by_header = bool(self.header) and not (
            self.required or self.selects or profile.first_sent_field or self.routed
        )
        if self.observer is None:
            self.terms  # noqa: B018 - raises what contradicts the settings

    @cached_property
    def terms(self) -> Resolved:
        """The policy with all its fields. One that observes is compiled when it is asked."""
        return resolve_policy(self.policy)

    # ---------------------------------------------------------------------- of a keyed request only

    @cached_property
    def store(self) -> BaseStore:
        """Where its records live. Raises `ConfigurationError` if that cannot keep the guarantee."""
        return store_of(self.terms)

    @cached_property
    def max_body(self) -> int:
        """The longest body that a record may hold (bytes)."""
        return body_limit(self.terms, self.store)

    @cached_property
    def leases(self) -> bool:
        return self.terms.guarantee is Guarantee.LEASE

    @cached_property
    def issue(self) -> Callable[..., Ticket]:
        """What makes the tickets of its requests: it takes the fields that differ."""
        return issuing(self.terms)

    @cached_property
    def handle(self) -> type[RequestIdempotency]:
        """What its views see as `request.idempotency`, with all that apps add to it."""
        return extended(RequestIdempotency)

    @cached_property
    def has_course(self) -> bool:
        """May an optional app say how a work ends?"""
        return has_course(self.handle)

    @cached_property
    def counter(self) -> RepeatCounter | None:
        """What counts replays and mismatches; `None`: nothing does."""
        if not conf.get("COUNT_REPLAYS"):
            return None
        from ..instrumentation.repeats import repeats  # it has a thread

        return repeats

    @cached_property
    def exemptions(self) -> tuple[Pattern, ...]:
        """The entries of EXEMPT. Raises `ConfigurationError` for a wrong one."""
        return tuple(exemptions())

    def compile(self) -> None:
        """Compile all of it. Raises what is wrong with the policy or the settings."""
        for name, value in vars(Plan).items():
            if isinstance(value, cached_property):
                getattr(self, name)

    # --------------------------------------------------------------------------------- what is sent

    def at(self, request: HttpRequest, callback: Any) -> Plan | None:
        """Return the plan of a request to a view, by ROUTES, if it asks for its guard."""
        policy = next(
            (policy for pattern, policy in self.routed if pattern.covers(request, callback)), None
        )
        plan = self if policy is None else plan_of(policy)
        return plan if plan.asks(request.META) else None

    def asks(self, meta: Mapping[str, Any]) -> bool:
        """Does a request carry a key, or may one be selected for it, or is it refused without
        one?
        """
        return bool(self.required) or self.may_have_key(meta)

    def may_have_key(self, meta: Mapping[str, Any]) -> bool:
        """Does a request carry a key, or may one be selected for it, or found in its body?"""
        return self.selects or self.in_body or self.carries_key(meta)

    def carries_key(self, meta: Mapping[str, Any]) -> bool:
        """Does a request have the header of the key, or the parameter, well formed or not?"""
        first_sent = self.profile.first_sent_field
        return self.sent(meta) is not None or (
            first_sent is not None and meta.get(conf.meta_name(first_sent)) is not None
        )

    def sent(self, meta: Mapping[str, Any]) -> object:
        """Return what a client has sent as its key; `None`: nothing, or it would be in the body.

        A list of several parameters of the query is not a key.
        """
        if self.header:
            return meta.get(self.header)
        if self.in_body:
            return None
        query = parse_qsl(str(meta.get("QUERY_STRING", "")), keep_blank_values=True)
        values = [value for name, value in query if name == self.profile.field]
        return values[0] if len(values) == 1 else values or None

    def read_key(self, meta: Mapping[str, Any]) -> UnprintedText | None:
        """Return the key that a client has sent, or `None` without one in the header or the query.

        Raises what `Dialect.read_key()` raises.
        """
        key = self.profile.read_key(self.sent(meta), meta)
        return None if key is None else UnprintedText(key)


#: Returns the plan of a policy under the settings. Raises `ImproperlyConfigured` for wrong settings.
plan_of = conf.compiled(Policy, Plan)


def may_refuse(policy: Policy, request: HttpRequest) -> bool:
    """Is there a key, or is one required?

    A request that is only warned about needs no guard inside its view.
    """
    plan = plan_of(policy)
    return plan.may_have_key(request.META) or plan.required is True


def resolve_policy(policy: Policy) -> Resolved:
    """Return a policy with all its fields.

    Raises `ConfigurationError` if it contradicts the settings.
    """
    try:
        terms = conf.resolve(policy)
        # Whoever says the two: an API that demands keys is not to run a request without one.
        Policy(profile=terms.profile, required=terms.required)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    problem = profile_contradiction(terms)
    if problem is not None:
        raise ConfigurationError(problem)
    return terms


def formatted(key: str, policy: Policy) -> str:
    """Return a key in the one spelling of the policy's format.

    Raises `KeyMalformed`, `KeyExpired` and `KeyAhead`.
    """
    key_format = conf.field(policy, "key_format")
    if key_format == ANY:
        return key
    if key_format == ISSUED:
        from .issued_keys import is_issued  # it loads Django's signing

        if not is_issued(key):
            raise KeyMalformed(_must_be(key_format))
    ttl = seconds(conf.field(policy, "ttl")) + conf.profile_of(policy.profile).grace
    match spelled(key, key_format, now=datetime.now(timezone.utc), ttl=ttl):
        case KeyFault.MALFORMED:
            raise KeyMalformed(_must_be(key_format))
        case KeyFault.EXPIRED:
            raise KeyExpired
        case KeyFault.AHEAD:
            raise KeyAhead
        case spelling:
            return spelling


def formatted_behind_client(key: str, policy: Policy) -> UnprintedText:
    """Return a key that was sent in the one spelling of the policy's format; the name of its
    client, which may stand before it, stays.

    Raises what `formatted()` raises.
    """
    client = ""
    if conf.profile_of(policy.profile).client_field is not None:
        client, space, key = key.rpartition(" ")
        client += space
    return UnprintedText(client + formatted(key, policy))


def _must_be(key_format: str | re.Pattern[str]) -> str:
    return f"The idempotency key must be {described(key_format)}."
