"""Checks of steps. Nothing here connects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.db import router

from ...api import Finding, setting
from ...checks.settings import after_settings
from ...runtime.registry import stores
from .journal import database_of
from .models import Step


class W132(Finding):
    """The steps of operations in the store "%(store)s" are written to the database "%(using)s",
    where your routers allow no table of them.

    Type a router of DATABASE_ROUTERS whose allow_migrate() puts the app idempotency_steps into
    "%(using)s". If no step runs under this store, type %(silence)s.
    """


@after_settings
def check_steps(**_: Any) -> Iterator[CheckMessage]:
    """Check that each database into which steps are written may have their table."""
    seen = set()
    for alias in setting("STORES"):
        with suppress(ImproperlyConfigured):  # another check says that
            using = database_of(stores[alias])
            if using not in seen and not router.allow_migrate_model(using, Step):
                yield W132(store=alias, using=using)
            seen.add(using)
