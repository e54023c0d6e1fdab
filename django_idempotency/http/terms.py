"""A policy combined with the settings."""

from __future__ import annotations

from .. import conf
from ..core.contradictions import (
    flood_contradiction,
    profile_contradiction,
    shared_contradiction,
    takeover_contradiction,
)
from ..core.policy import Policy, Resolved
from ..errors import ConfigurationError

#: On a policy: its latest terms that contradict nothing.
_SOUND = "_sound"


def resolve_policy(policy: Policy) -> Resolved:
    """Return a policy with all its fields. Raises `ConfigurationError` if it contradicts the settings."""
    try:
        terms = conf.resolve(policy)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    if policy.__dict__.get(_SOUND) is not terms:
        _require_sound(policy, terms)
        policy.__dict__[_SOUND] = terms
    return terms


def _require_sound(policy: Policy, terms: Resolved) -> None:
    problem = (
        profile_contradiction(terms)
        or takeover_contradiction(policy, terms)
        or flood_contradiction(terms)
        or shared_contradiction(terms)
    )
    if problem is not None:
        raise ConfigurationError(problem)
