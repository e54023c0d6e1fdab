"""The ticket of one call: what its entry point found, what its policy says, and what is unique to the call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.conf import settings

from ..core.hashing import secret_id
from ..core.policy import Resolved
from ..core.records import Ticket


def issuing(policy: Resolved, **given: Any) -> Callable[..., Ticket]:
    """Return what makes the tickets of all calls under a resolved policy: it takes the fields that differ, and not `given`."""
    return partial(
        Ticket,
        lease=policy.claim_lease,
        ttl=policy.ttl,
        guarantee=policy.guarantee,
        secret_id=secret_id(policy.derive_secret or settings.SECRET_KEY),
        **given,
    )
