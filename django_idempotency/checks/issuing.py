"""Checks that keys which only the server makes can be had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage

from .. import conf
from ..core.key_formats import ISSUED
from ..core.policy import Policy
from ..http.markers import view_class
from .catalogue import finding
from .middleware import guards_every_view
from .settings import check_settings
from .urlconf import name_of, policies, views

#: On a view, or its class: it issues keys.
ISSUES = "issues_idempotency_keys"


def check_issuing(**_: Any) -> list[CheckMessage]:
    """Check that a route issues keys, if a header or a parameter must have one. A form has its own."""
    if check_settings() or any(hasattr(view_class(callback), ISSUES) for callback, _ in views()):
        return []
    asking = next(_asking(), None)
    return [] if asking is None else [finding("W088", asking=asking)]


def _asking() -> Iterator[str]:
    for callback, leading in views():
        if any(_asks(policy) for policy in policies(callback)):
            yield f"The policy of {name_of(callback)} ({leading[0].path})"
    if guards_every_view() and _asks(Policy()):
        yield 'IDEMPOTENCY["KEY_FORMAT"]'


def _asks(policy: Policy) -> bool:
    profile = conf.profile_of(policy.profile, conf.project_settings())
    return conf.field(policy, "key_format") == ISSUED and profile.carrier != "body"
