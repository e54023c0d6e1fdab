"""A route's plan: all that its policy and the settings say about a request, compiled once.

A request only executes it: it reads no setting. A plan is compiled again when the settings change,
as Django's signal `setting_changed` says: see `conf.compiled()`.

The last part says how a key is spelled: what a plan's profile and its policy's format accept, and
what of that is the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from django.http import HttpRequest

from .. import conf
from ..core.key_formats import ANY, ISSUED, KeyFault, described, spelled
from ..core.policy import (
    ENFORCE,
    SAFE_METHODS,
    Observing,
    Policy,
    Resolved,
    profile_contradiction,
    seconds,
)
from ..core.profiles import DEFAULT, Profile
from ..core.records import Guarantee, Ticket, UnprintedText
from ..errors import ConfigurationError, KeyAhead, KeyExpired, KeyMalformed
from ..runtime.handle import has_course
from ..runtime.registry import body_limit, issuing, store_of
from ..runtime.wings import extended, wing
from ..stores.base import BaseStore
from .exchange import RequestIdempotency, Spoken
from .exemptions import Pattern, exemptions

if TYPE_CHECKING:
    from ..instrumentation.repeats import RepeatCounter

#: A policy that leaves everything to the settings.
ANY_POLICY = Policy()
#: The middleware's, for views that no entry of ROUTES names.
EVERY_VIEW = Policy()


class Plan:
    """The plan of the routes that have one policy.

    What decides whether a request asks for a guard is compiled at once. The rest is compiled for
    the first request that does, or by `manage.py check`: it raises `ConfigurationError` for a
    policy that contradicts the settings, and `ImproperlyConfigured` for settings that are wrong.
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
            from .routes import policies  # it compiles plans

            self.routed = policies()
        self.profile = profile = conf.profile_of(policy.profile, conf.project_settings())
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
        #: Is a key not used as it was sent?
        self.respells = conf.field(policy, "key_format") != ANY or profile.client_field is not None
        # Most plans: a request without the header asks for nothing.
        self._asks_by_header = bool(self.header) and not (
            self.required or self.selects or profile.first_sent_field or self.routed
        )

    # ---------------------------------------------------------------------- of a keyed request only

    @cached_property
    def terms(self) -> Resolved:
        """The policy with all its fields."""
        return resolve_policy(self.policy)

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
    def patience(self) -> float:
        """How long a request waits for a busy record (seconds)."""
        return self.terms.wait if self.terms.on_busy == "wait" else 0.0

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
        """May a wing say how a work ends?"""
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
        """Return what a client has sent as its key; `None`: nothing, or it would be in the body."""
        if self.header:
            return meta.get(self.header)
        return (
            None
            if self.in_body
            else _parameter(str(meta.get("QUERY_STRING", "")), self.profile.field)
        )

    def read_key(self, meta: Mapping[str, Any]) -> UnprintedText | None:
        """Return the key that a client has sent, or `None` without one in the header or the query.

        Raises `KeyMalformed`, and `KeyExpired` or `KeyAhead` outside the window of the profile.
        """
        profile = self.profile
        sent = meta.get(self.header) if self.header else self.sent(meta)
        if profile.first_sent_field is not None:
            wing("dialects").require_timely(sent, meta, profile, now=datetime.now(timezone.utc))
        if sent is None:
            return None
        return UnprintedText(parse_key(sent, profile) if self.header else plain_key(sent, profile))

    def respelled(self, key: UnprintedText, meta: Mapping[str, Any]) -> UnprintedText:
        """Return a key in the spelling of the policy's format, under the name of its client if it
        has one.

        Raises what `formatted()` and `of_client()` raise.
        """
        key = UnprintedText(formatted(key, self.policy))
        client = self.profile.client_field
        if client is not None:
            key = UnprintedText(
                wing("dialects").of_client(key, meta.get(conf.meta_name(client)), self.profile)
            )
        return key


@conf.compiled
def plan_of(policy: Policy = ANY_POLICY) -> Plan:
    """Return the plan of a policy under the current settings.

    Raises `ImproperlyConfigured` for settings of no use.
    """
    return Plan(policy)


def asking(policy: Policy, request: HttpRequest) -> Plan | None:
    """Return the plan of a policy if a request asks for its guard: see `Plan.asks()`, or `at()` if
    it has routes.

    `None`, too, for a safe method.
    """
    if request.method in SAFE_METHODS:
        return None
    plan = plan_of(policy)
    if plan._asks_by_header:  # noqa: SLF001 - each keyless request comes here
        return plan if request.META.get(plan.header) is not None else None
    return plan if plan.routed or plan.asks(request.META) else None


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
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    problem = profile_contradiction(terms)
    if problem is not None:
        raise ConfigurationError(problem)
    return terms


def _parameter(query: str, name: str) -> object:
    """Return the value of a parameter of the query; `None`: it is not there.

    A list of several is not a key.
    """
    values = [value for key, value in parse_qsl(query, keep_blank_values=True) if key == name]
    return values[0] if len(values) == 1 else values or None


# ----------------------------------------------------------------------------- how a key is spelled

# A bare key: visible ASCII and inner spaces, no quote; no comma either, since servers join two
# headers with one.
_BARE = re.compile(r"[!#-+\--~](?:[ !#-+\--~]*[!#-+\--~])?")
# RFC 9651 section 3.3.3, as the IETF draft (section 2.1) has it: printable ASCII, in which only
# \" and \\ are escaped.
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
# An item of RFC 9651 (section 4.2.3) that is a string. Nothing defines its parameters, so they do
# not count.
_VALUE = (
    r"-?\d{1,12}\.\d{1,3}|-?\d{1,15}|@-?\d{1,15}|\?[01]|:[A-Za-z0-9+/]*={0,2}:"
    r'|"(?:[ !#-\[\]-~]|\\["\\])*"|%"(?:[ '
    r'!#-$&-~]|%[0-9a-f]{2})*"|[A-Za-z*][!#$%&\'*+\-.^_`|~:/0-9A-Za-z]*'
)
_ITEM = re.compile(rf"{_QUOTED.pattern}(?:; *[a-z*][a-z0-9_\-.*]*(?:=(?:{_VALUE}))?)*")
# Any visible ASCII with inner spaces; in a header no comma.
_OPAQUE = re.compile(r"[!-+\--~](?:[ -+\--~]*[!-+\--~])?")
_MEMBER = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def parse_key(sent: object, profile: Profile) -> str:
    """Return the key in the value of a header, as a profile spells it.

    Raises `KeyMalformed`. With "either", `"k"` and `k` are one key. Official Stripe clients send
    unquoted keys that are not valid UUIDs: they are accepted.
    """
    text = str(sent)  # a test client, or a middleware, may set a UUID
    quoted: re.Match[str] | None = None
    match profile.spelling:
        case "quoted":
            quoted = _ITEM.fullmatch(text.strip(" "))
            return _fitting(quoted and re.sub(r"\\(.)", r"\1", quoted[1]), profile)
        case "opaque":
            return plain_key(text.strip(" \t"), profile)
        case "bare":
            bare = _OPAQUE.fullmatch(text.strip(" \t"))
            return _fitting(bare and bare[0], profile)
    text = text.strip(" \t")
    if quoted := _QUOTED.fullmatch(text):
        return _fitting(re.sub(r"\\(.)", r"\1", quoted[1]), profile)
    return _fitting(text if _BARE.fullmatch(text) else None, profile)


def plain_key(sent: object, profile: Profile) -> str:
    """Return a key that may hold any printable ASCII, as in a member of a body or in a parameter.

    Raises `KeyMalformed`.
    """
    return _fitting(sent if isinstance(sent, str) and _MEMBER.fullmatch(sent) else None, profile)


def _fitting(key: str | None, profile: Profile) -> str:
    if (
        not key
        or len(key) > profile.max_length
        or (profile.pattern and not re.fullmatch(profile.pattern, key))
    ):
        raise KeyMalformed(
            "" if replace(profile, field=DEFAULT.field) == DEFAULT else expectation(profile)
        )
    return key


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
    profile = conf.profile_of(policy.profile, conf.project_settings())
    ttl = seconds(conf.field(policy, "ttl")) + profile.grace
    match spelled(key, key_format, now=datetime.now(timezone.utc), ttl=ttl):
        case KeyFault.MALFORMED:
            raise KeyMalformed(_must_be(key_format))
        case KeyFault.EXPIRED:
            raise KeyExpired
        case KeyFault.AHEAD:
            raise KeyAhead
        case spelling:
            return spelling


def _must_be(key_format: str | re.Pattern[str]) -> str:
    return f"The idempotency key must be {described(key_format)}."


def expectation(profile: Profile) -> str:
    """Say what a key must be, which one is not."""
    quoted = " in double quotes" if profile.spelling == "quoted" else ""
    shape = f" that match {profile.pattern}" if profile.pattern else ""
    where = {"header": "the header", "body": "the member", "query": "the parameter"}[
        profile.carrier
    ]
    return (
        f"The idempotency key is malformed. Send 1 to {profile.max_length} printable ASCII "
        f"characters{quoted}{shape} in "
        f"{where} {profile.field}."
    )
