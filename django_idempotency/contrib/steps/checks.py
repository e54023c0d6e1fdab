"""Checks of steps. Nothing here connects."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.db import router

from ... import conf
from ...checks.settings import check_settings
from ...runtime.registry import stores
from ...stores.check_messages import Finding
from .journal import database_of
from .models import Step


class W132(Finding):
    """The steps of operations in the store "%(store)s" are written to the database "%(using)s", where your routers
    allow no table of them.

    Type a router of DATABASE_ROUTERS whose allow_migrate() puts the app idempotency_steps into "%(using)s". If no
    step runs under this store, type %(silence)s.
    """


def check_steps(**_: Any) -> list[CheckMessage]:
    """Check that each database into which steps are written may have their table."""
    if check_settings():
        return []
    found: dict[str, CheckMessage] = {}
    for alias in conf.get("STORES"):
        with suppress(ImproperlyConfigured):  # another check says that
            using = database_of(stores[alias])
            if not router.allow_migrate_model(using, Step):
                found.setdefault(using, W132(store=alias, using=using))
    return list(found.values())
