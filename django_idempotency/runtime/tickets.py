"""The ticket of one call: what its entry point found, what its policy says, and what is unique to the call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from uuid import uuid4

from django.conf import settings

from ..core.hashing import record_id, secret_id
from ..core.policy import Resolved
from ..core.records import Ticket


def issuing(policy: Resolved, *, method: str, path: str) -> Callable[..., Ticket]:
    """Return what makes the tickets of all calls under a resolved policy: it takes the fields that differ."""
    return partial(
        Ticket,
        lease=policy.claim_lease,
        ttl=policy.ttl,
        guarantee=policy.guarantee,
        secret_id=secret_id(policy.derive_secret or settings.SECRET_KEY),
        method=method,
        path=path[:255],
    )


def issue(
    policy: Resolved,
    *,
    scope: str,
    key: str,
    digest: bytes,
    method: str,
    path: str,
    request_id: str = "",
    ttl: float | None = None,
) -> Ticket:
    """Return the ticket of a call under a resolved policy. `ttl` is seconds; `None`: that of the policy."""
    ticket = issuing(policy, method=method, path=path)(
        id=record_id(scope, key),
        scope=scope,
        key=key,
        digest=digest,
        owner=uuid4(),  # from the operating system: neither a fork nor a snapshot repeats it
        now=datetime.now(timezone.utc),
        request_id=request_id,
    )
    return ticket if ttl is None else ticket._replace(ttl=ttl)
