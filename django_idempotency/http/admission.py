"""Which requests are guarded, and under which key: asked by every entry point, before there is an exchange."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from .. import conf
from ..contrib.observe.observing import watch
from ..core.conclusions import WorkResult
from ..core.policy import OBSERVE, SAFE_METHODS, WARN, Policy
from ..core.profiles import Profile
from ..core.records import UnprintedText
from ..errors import ConfigurationError, KeyMissing, KeyUnsupported, Problem
from ..instrumentation.outcomes import UNGUARDED, UNKEYED
from ..runtime import switch
from . import counting
from .facts import RequestFacts, facts_of
from .handle import switch_off, without_key
from .identity import UNUSABLE, Key, Where, has_owner
from .keys import formatted
from .markers import view_class
from .spoken import speak
from .terms import resolve_policy
from .unguarded import KEYLESS, METHOD, NOBODY, leave_unguarded

#: On a request: the exchange that guards it, while its view runs.
GUARDED_BY = "_idempotency_exchange"


def key_to_guard(request: HttpRequest, policy: Policy, *, by: str = "decorator") -> Key | None:
    """Return the key to guard a request under, or `None` to let it run; cheap when there is none.

    `by` is the kind of the entry point that asks, for the metrics.

    `Where.PAYLOAD`: the policy selects it, which may read the body and is left to `Exchange.of()`. `None` for a safe
    method, a method outside the policy, a request that an outer guard covers, no key, and while idempotency is off.
    Raises `KeyMissing`, `KeyMalformed`, `KeyExpired`, `KeyAhead` and `KeyUnsupported`, and `ConfigurationError` for a
    policy that contradicts the settings; or notes them if the policy only observes. `ConfigurationError`, too, for a
    guard that the middleware cannot see.
    """
    if not hasattr(request, "idempotency"):
        request.idempotency = without_key()  # type: ignore[attr-defined]
    if request.method in SAFE_METHODS or is_covered(request):
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


def key_with_owner(request: HttpRequest, policy: Policy, *, user: Any, by: str) -> Key | None:
    """See key_to_guard(). A request without a principal, which may run unguarded, does so with an unusable key, too.

    For what guards views that know nothing of keys: the sender may be another service, whose header of that name means
    something else.
    """
    try:
        return key_to_guard(request, policy, by=by)
    except UNUSABLE:
        if has_owner(request, user, resolve_policy(policy)):
            raise
        leave_unguarded(request, NOBODY)
        return None


def _key_of(request: HttpRequest, facts: RequestFacts, policy: Policy, profile: Profile) -> Key | None:
    key = facts.read_key(policy)
    if not facts.is_guarded_method(policy):
        raise KeyUnsupported
    if key is not None:
        key = UnprintedText(facts.of_client(formatted(key, policy), profile))
        if profile.echoes:
            speak(request, profile, facts.sent_in(profile))
        return key
    if facts.may_have_key(policy):
        return Where.PAYLOAD
    if conf.field(policy, "required") == WARN:
        leave_unguarded(request, KEYLESS)
        return None
    raise KeyMissing


def is_covered(request: HttpRequest) -> bool:
    """Is it guarded already, so that a guard has nothing to do?

    Raises `ConfigurationError` for a guard inside a view that the middleware guards: a replay would skip what stands between
    the two. That view's response is not kept, even if it handles the error.
    """
    outer: Any = getattr(request, GUARDED_BY, None)  # an exchange
    if outer is not None and outer.by_middleware:
        outer.handle._ending = WorkResult.FAILED  # noqa: SLF001 - the view may have worked: it is rolled back
        view = getattr(getattr(request, "resolver_match", None), "func", None)
        name = getattr(view_class(view) or view, "__qualname__", "the view")
        raise ConfigurationError(
            f"{name} calls a view with a guard of its own, which IdempotencyMiddleware cannot see: it guards {name} instead, "
            "by its own policy, and a replay would skip what checks access before the inner view. Put "
            f"@idempotency_exempt on {name}; the inner view keeps its guard."
        )
    return outer is not None


def is_guarded(request: HttpRequest) -> bool:
    """Does an outer entry point guard this request now?"""
    return hasattr(request, GUARDED_BY)
