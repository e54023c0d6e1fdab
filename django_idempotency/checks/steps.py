"""Checks of steps. Nothing here connects."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.db import router

from .. import conf
from ..runtime.registry import stores
from .catalogue import finding
from .settings import check_settings

APP = "django_idempotency.contrib.steps"


def check_steps(**_: Any) -> list[CheckMessage]:
    """Check that each database into which steps are written may have their table."""
    if not apps.is_installed(APP) or check_settings():
        return []
    from ..contrib.steps.journal import database_of  # not above: loads the model
    from ..contrib.steps.models import Step

    found: dict[str, CheckMessage] = {}
    for alias in conf.get("STORES"):
        with suppress(ImproperlyConfigured):  # another check says that
            using = database_of(stores[alias])
            if not router.allow_migrate_model(using, Step):
                found.setdefault(using, finding("W132", store=alias, using=using))
    return list(found.values())
