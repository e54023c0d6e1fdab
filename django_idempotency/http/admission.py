"""Which requests are guarded, and under which key: asked by every entry point, before there is an exchange."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from .. import conf
from ..core.policy import OBSERVE, SAFE_METHODS, WARN, Policy
from ..errors import ConfigurationError, KeyMissing, KeyUnsupported, Problem
from ..instrumentation.outcomes import UNGUARDED, UNKEYED
from ..profiles import Profile
from ..runtime import switch
from . import counting
from .facts import RequestFacts, facts_of
from .handle import switch_off
from .identity import Key, Where
from .keys import formatted
from .observing import watch
from .spoken import speak
from .terms import resolve_policy
from .unguarded import KEYLESS, METHOD, leave_unguarded

#: On a request: the exchange that guards it, while its view runs.
GUARDED_BY = "_idempotency_exchange"


def key_to_guard(request: HttpRequest, policy: Policy, *, by: str = "decorator") -> Key | None:
    """Return the key to guard a request under, or `None` to let it run; cheap when there is none.

    `by` is the kind of the entry point that asks, for the metrics.

    `Where.PAYLOAD`: the policy selects it, which may read the body and is left to `Exchange.of()`. `None` for a safe
    method, a method outside the policy, a request that an outer guard covers, no key, and while idempotency is off.
    Raises `KeyMissing`, `KeyMalformed`, `KeyExpired`, `KeyAhead` and `KeyUnsupported`, and `ConfigurationError` for a
    policy that contradicts the settings; or notes them if the policy only observes.
    """
    if request.method in SAFE_METHODS or is_guarded(request):
        return None
    counting.begin(request, policy, by)
    facts = facts_of(request)
    if not facts.asks_for_guard(policy):
        counting.count(request, UNKEYED)
        return None
    profile = facts.profile_of(policy)
    speak(request, profile)
    if not facts.is_guarded_method(policy) and not (profile.unsupported_status and facts.carries_key(policy)):
        if facts.carries_key(policy):
            leave_unguarded(request, METHOD)
        return None
    if not switch.enabled():
        switch_off(request, policy)
        counting.count(request, UNGUARDED)
        return None
    try:
        key = _key_of(request, facts, policy, profile)
        if key is not None:
            resolve_policy(policy)  # raises what contradicts the settings
    except (Problem, ConfigurationError, ImproperlyConfigured) as error:
        if conf.field(policy, "mode") != OBSERVE:
            raise
        watch(request, None, refusal=error)
        return None
    return key


def _key_of(request: HttpRequest, facts: RequestFacts, policy: Policy, profile: Profile) -> Key | None:
    key = facts.read_key(policy)
    if not facts.is_guarded_method(policy):
        raise KeyUnsupported
    if key is not None:
        key = facts.of_client(formatted(key, policy), profile)
        if profile.echoes:
            speak(request, profile, facts.sent_in(profile))
        return key
    if facts.may_have_key(policy):
        return Where.PAYLOAD
    if conf.field(policy, "required") == WARN:
        leave_unguarded(request, KEYLESS)
        return None
    raise KeyMissing


def is_guarded(request: HttpRequest) -> bool:
    """Does an outer entry point guard this request now?"""
    return hasattr(request, GUARDED_BY)
