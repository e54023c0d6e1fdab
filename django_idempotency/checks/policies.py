"""Checks of one policy against the settings."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import ERROR, CheckMessage
from django.core.exceptions import ImproperlyConfigured

from .. import conf
from ..core.policy import Policy, Resolved, profile_contradiction
from ..core.records import Guarantee
from ..errors import ConfigurationError
from ..http.plan import plan_of
from .caches import cache_errors
from .catalogue import closest, finding
from .stores import built


def policy_errors(
    name: str, policy: Policy, *, coroutine: str | None, has_profile: bool = True
) -> Iterator[CheckMessage]:
    """Yield what is wrong with the policy of a view or a function. `coroutine`: the code for one that is async.

    `has_profile`: it answers requests, so its profile counts. Then its plan is compiled, too: a request would raise the same.
    """
    found = list(_errors(name, policy, coroutine=coroutine, has_profile=has_profile))
    yield from found
    if has_profile and not any(each.level >= ERROR for each in found):
        try:
            plan_of(policy).compile()
        except (ConfigurationError, ImproperlyConfigured) as error:
            yield finding("E035", view=name, error=error)


def _errors(name: str, policy: Policy, *, coroutine: str | None, has_profile: bool) -> Iterator[CheckMessage]:
    alias = conf.field(policy, "store")
    if alias not in conf.get("STORES"):
        yield finding("E036", view=name, alias=alias, close=closest(alias, conf.get("STORES")))
        return
    try:
        terms = conf.resolve(policy)
    except ValueError as error:
        yield finding("E035", view=name, error=error)
        return
    if has_profile:
        yield from _of_requests(name, policy, terms)
    if terms.guarantee is Guarantee.LEASE and policy.given().get("undo_on") and not terms.store_body:
        yield from _unsealed_steps(name)
    if terms.guarantee is not Guarantee.ATOMIC:
        return
    if policy.given().get("undo_on"):
        yield finding("E130", view=name)
    if terms.claim_lease >= terms.ttl:
        lease = conf.get("CLAIM_LEASE")
        yield finding("E035", view=name, error=f'make "CLAIM_LEASE" ({lease!r}) shorter than ttl ({terms.ttl:g}).')
    if coroutine is not None:
        yield finding(coroutine, view=name)
    if (store := built(alias)) and not store.supports_atomic:
        yield finding("E037", view=name, alias=alias)


def _unsealed_steps(name: str) -> Iterator[CheckMessage]:
    if not conf.get("ENCRYPTION_KEYS"):
        yield finding("E133", view=name)


def _of_requests(name: str, policy: Policy, terms: Resolved) -> Iterator[CheckMessage]:
    """Yield what is wrong with the fields that functions do not have."""
    for problem in [profile_contradiction(terms)]:
        if problem is not None:
            yield finding("E035", view=name, error=problem)
    if terms.fresh_keys is not None and terms.fresh_keys_by is None and terms.anonymous == "shared":
        yield finding("W104", view=name)
    yield from cache_errors(name, terms)
