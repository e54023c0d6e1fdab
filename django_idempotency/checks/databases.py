"""Checks of where records are: the databases under the stores, their schemas of tenants, and the
process.

Nothing here connects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage
from django.db import router

from .. import conf
from ..stores.base import innermost
from ..stores.check_messages import Finding
from .settings import after_settings
from .stores import built, nested_in


class W002(Finding):
    """DATABASE_ROUTERS keep the table of django_idempotency out of the database "%(using)s", where
    a store needs it.

    Let allow_migrate("%(using)s", "django_idempotency") return True in your router, or type
    "OPTIONS": {"using": …} with a database where it does.
    """


class W003(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] is a MemoryStore: other processes do not see its records,
    and a restart loses them.

    Type "BACKEND": "django_idempotency.stores.orm.ORMStore". For tests, or if there is only one
    process, %(silence)s.
    """


class W069(Finding):
    """django_idempotency is in TENANT_APPS and not in SHARED_APPS: a keyed request to the public
    schema finds no table, and gets 503.

    Add "django_idempotency" to SHARED_APPS, too, and run manage.py migrate_schemas --shared. If
    nothing guarded runs in the public schema, type %(silence)s.
    """


@after_settings
def check_databases(**_: Any) -> Iterator[CheckMessage]:
    """Check DATABASES and their routers."""
    from ..models import IdempotencyRecord  # not above: loads the model

    if kept_in_tenants():
        yield W069()
        return
    for using in record_databases():
        if not router.allow_migrate_model(using, IdempotencyRecord):
            yield W002(using=using)


@after_settings
def check_memory(**_: Any) -> Iterator[CheckMessage]:
    """Warn of memory stores outside DEBUG."""
    for alias in [] if settings.DEBUG else conf.get("STORES"):
        store = built(alias)
        # A nested store is reported under its own alias.
        if store is not None and innermost(store).in_process and not nested_in(alias):
            yield W003(alias=alias)


def record_databases() -> list[str]:
    """Return the databases that hold records."""
    found = [store.rows_in for alias in conf.get("STORES") if (store := built(alias)) is not None]
    return list(dict.fromkeys(using for using in found if using is not None))


def kept_in_tenants() -> bool:
    """Is our table in each tenant's schema, and not in the shared one?"""
    return (
        apps.is_installed("django_tenants")
        and _names_us("TENANT_APPS")
        and not _names_us("SHARED_APPS")
    )


def _names_us(name: str) -> bool:
    listed = getattr(settings, name, ())
    return any(each == conf.APP or each.startswith(f"{conf.APP}.apps.") for each in listed)
