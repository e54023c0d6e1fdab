"""The setting ROUTES: policies of views that a project cannot edit. The middleware guards them.

Its plan is compiled with the entries, as patterns with policies.
"""

from __future__ import annotations

from typing import Any

from .. import conf
from ..core.policy import Policy
from ..errors import ConfigurationError
from .exemptions import Pattern, parsed


def policies() -> tuple[tuple[Pattern, Policy], ...]:
    """Return the entries of ROUTES, in their order: the first one that covers a request counts.

    Raises `ConfigurationError` for a wrong one, rather than ignoring it.
    """
    try:
        return tuple(policy_at(entry, fields) for entry, fields in conf.get("ROUTES").items())
    except (ValueError, TypeError, AttributeError, ImportError) as error:
        raise ConfigurationError(f'IDEMPOTENCY["ROUTES"]: {error}') from error


def policy_at(entry: Any, fields: Any) -> tuple[Pattern, Policy]:
    """Return an entry of ROUTES: which requests, and their policy.

    Raises `ValueError` or `TypeError` with a sentence, and what importing the function of a field
    raises.
    """
    pattern = parsed(entry)
    if pattern.kind == "function":
        raise ValueError(
            f"{pattern.text!r} decides anew for each request, and a policy is that of a route"
        )
    if not isinstance(fields, dict):
        raise TypeError(
            f"{entry!r} has no dict of the fields of a policy, such as {{'required': True}}"
        )
    policy = Policy(**{name: conf.by_path(name, value) for name, value in fields.items()})
    profile = conf.profile_of(policy.profile)
    if profile.carrier == "body":
        raise ValueError(
            f"{entry!r} has the profile {profile.name!r}, and the middleware looks for no "
            "key in a body"
        )
    return pattern, policy
