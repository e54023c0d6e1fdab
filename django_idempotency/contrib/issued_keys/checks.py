"""Is there a route that issues the keys which a policy asks for?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage

from ... import conf
from ...checks.middleware import guards_every_view
from ...checks.settings import after_settings
from ...checks.urlconf import name_of, policies, views
from ...core.key_formats import ISSUED
from ...core.policy import Policy
from ...http.markers import view_class
from ...stores.check_messages import Finding


class W088(Finding):
    """%(asking)s takes keys that the server issues, and no route issues any: each request with a
    key is refused.

    Add path("", include("django_idempotency.contrib.issued_keys.urls")) to urlpatterns, or a route
    to the IdempotencyTokenView of django_idempotency.contrib.issued_keys.rest; or %(silence)s.
    """


@after_settings
def check_issuing(**_: Any) -> Iterator[CheckMessage]:
    """Check that a route issues keys, if a header or a parameter must have one.

    A form has its own.
    """
    if not any(hasattr(view_class(callback), "issues_idempotency_keys") for callback, _ in views()):
        for asking in [*_asking()][:1]:
            yield W088(asking=asking)


def _asking() -> Iterator[str]:
    for callback, leading in views():
        if any(_asks(policy) for policy in policies(callback)):
            yield f"The policy of {name_of(callback)} ({leading[0].path})"
    if guards_every_view() and _asks(Policy()):
        yield 'IDEMPOTENCY["KEY_FORMAT"]'


def _asks(policy: Policy) -> bool:
    profile = conf.profile_of(policy.profile, conf.project_settings())
    return conf.field(policy, "key_format") == ISSUED and profile.carrier != "body"
