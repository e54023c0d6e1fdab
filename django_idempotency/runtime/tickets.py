"""The ticket of one call: what its entry point found, what its policy says, and what is unique to the call."""

from __future__ import annotations

from datetime import datetime, timezone
from uuid import uuid4

from django.conf import settings

from ..core.hashing import record_id, secret_id
from ..core.policy import Resolved
from ..core.records import Ticket


def issue(
    policy: Resolved,
    *,
    scope: str,
    key: str,
    digest: bytes,
    method: str,
    path: str,
    request_id: str = "",
    lease: float | None = None,
    ttl: float | None = None,
) -> Ticket:
    """Return the ticket of a call under a resolved policy. `lease` and `ttl` are seconds; `None`: those of the policy."""
    return Ticket(
        id=record_id(scope, key),
        scope=scope,
        key=key,
        digest=digest,
        owner=uuid4(),  # from the operating system: neither a fork nor a snapshot repeats it
        now=datetime.now(timezone.utc),
        lease=policy.claim_lease if lease is None else lease,
        ttl=policy.ttl if ttl is None else ttl,
        guarantee=policy.guarantee,
        secret_id=secret_id(policy.derive_secret or settings.SECRET_KEY),
        method=method,
        path=path[:255],
        request_id=request_id,
    )
