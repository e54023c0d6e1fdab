"""Checks of the audit trail. Nothing here connects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage
from django.db import router

from ...api import Finding, Guarantee, setting
from ...checks.settings import after_settings
from ...runtime.registry import stores
from .models import AuditEvent


class W111(Finding):
    """INSTALLED_APPS has "django_idempotency.contrib.audit", and IDEMPOTENCY["AUDIT"] is not True:
    nothing is written.

    Type "AUDIT": True in IDEMPOTENCY, or take the app out. If the trail is to stay off, type
    %(silence)s.
    """


class W112(Finding):
    """The store "%(store)s" keeps its records in the database "%(records)s", and the audit trail is
    in "%(trail)s": an event is not committed with the response that it is about.

    Type a router of DATABASE_ROUTERS whose db_for_write() and allow_migrate() put the app
    idempotency_audit into "%(records)s". If a crash may lose an event, type %(silence)s.
    """


@after_settings
def check_audit(**_: Any) -> Iterator[CheckMessage]:
    """Check that events are written, and committed with what they are about."""
    if not setting("AUDIT"):
        yield W111()
    if not setting("AUDIT") or setting("GUARANTEE") != Guarantee.ATOMIC:
        return
    trail = router.db_for_write(AuditEvent)
    records = stores[setting("STORE")].using
    if records is not None and records != trail:
        yield W112(store=setting("STORE"), records=records, trail=trail)
