"""Checks of the audit trail. Nothing here connects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage
from django.db import router

from ... import conf
from ...checks.settings import check_settings, complaint, senseless
from ...core.records import Guarantee
from ...runtime.registry import stores
from ...stores.check_messages import SILENCE, message
from .models import AuditEvent

#: Code → (message, hint).
CHECKS: dict[str, tuple[str, str]] = {
    "W111": (
        'INSTALLED_APPS has "django_idempotency.contrib.audit", and IDEMPOTENCY["AUDIT"] is not True: nothing is written.',
        f'Type "AUDIT": True in IDEMPOTENCY, or take the app out. If the trail is to stay off, type {SILENCE}.',
    ),
    "W112": (
        (
            'The store "%(store)s" keeps its records in the database "%(records)s", and the audit trail is in "%(trail)s": an '
            "event is not committed with the response that it is about."
        ),
        (
            "Type a router of DATABASE_ROUTERS whose db_for_write() and allow_migrate() put the app idempotency_audit into "
            f'"%(records)s". If a crash may lose an event, type {SILENCE}.'
        ),
    ),
}


def check_audit(**_: Any) -> list[CheckMessage]:
    """Check AUDIT and AUDIT_RETENTION, and that events are committed with what they are about."""
    return [] if check_settings() else [*_values()] or [*_together()]


def _values() -> Iterator[CheckMessage]:
    wanted, kept = conf.get("AUDIT"), conf.get("AUDIT_RETENTION")
    if not isinstance(wanted, bool):
        yield senseless("AUDIT", "True or False")
    elif not wanted:
        yield message(CHECKS, "W111")
    if kept is not None and (expected := complaint("ttl", kept)) is not None:
        yield senseless("AUDIT_RETENTION", f"None, or {expected}")


def _together() -> Iterator[CheckMessage]:
    if not conf.get("AUDIT") or conf.get("GUARANTEE") != Guarantee.ATOMIC:
        return
    trail, records = router.db_for_write(AuditEvent), stores[conf.get("STORE")].using
    if records is not None and records != trail:
        yield message(CHECKS, "W112", store=conf.get("STORE"), records=records, trail=trail)
