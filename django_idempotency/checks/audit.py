"""Checks of the audit trail. Nothing here connects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage
from django.db import router

from .. import conf
from ..core.records import Guarantee
from ..runtime.registry import stores
from .catalogue import finding
from .settings import check_settings

APP = "django_idempotency.contrib.audit"


def check_audit(**_: Any) -> list[CheckMessage]:
    """Check that AUDIT and the app agree, and that events are committed with what they are about."""
    return [] if check_settings() else [*_installed(), *_together()]


def _installed() -> Iterator[CheckMessage]:
    wanted, installed = conf.get("AUDIT"), apps.is_installed(APP)
    if wanted and not installed:
        yield finding("E110")
    elif installed and not wanted:
        yield finding("W111")


def _together() -> Iterator[CheckMessage]:
    if not (conf.get("AUDIT") and apps.is_installed(APP)) or conf.get("GUARANTEE") != Guarantee.ATOMIC:
        return
    from ..contrib.audit.models import AuditEvent  # not above: loads the model

    trail, records = router.db_for_write(AuditEvent), stores[conf.get("STORE")].using
    if records is not None and records != trail:
        yield finding("W112", store=conf.get("STORE"), records=records, trail=trail)
