"""Checks of where records are: the databases under the stores, their schemas of tenants, and the
process.

Nothing here connects, except `check_migrations`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage
from django.db import connections, router
from django.db.migrations.executor import MigrationExecutor

from .. import conf
from ..core.records import Guarantee
from ..stores.base import innermost
from ..stores.check_messages import Finding
from ..stores.database_checks import vendor_of
from ..stores.orm.dialects import served
from .settings import after_settings
from .stores import built, nested_in


class E017(Finding):
    """DATABASES["%(using)s"] has "AUTOCOMMIT": False, and records live there: no other connection
    would see a claim.

    Take "AUTOCOMMIT": False out of DATABASES["%(using)s"], and open transactions with atomic().
    """


class W001(Finding):
    """The database "%(other)s" is not covered by "atomic", whose records are in "%(using)s": what a
    view writes there is not rolled back with it.

    If it is a replica, type DATABASES["%(other)s"]["TEST"] = {"MIRROR": "%(using)s"}. Where a view
    writes there, type guarantee="lease" in its policy. Then %(silence)s.
    """


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


class W080(Finding):
    """Migrations of django_idempotency are not applied to the database "%(using)s": until they are,
    requests with a key get 503.

    Type python manage.py migrate django_idempotency --database=%(using)s
    """


@after_settings
def check_databases(**_: Any) -> Iterator[CheckMessage]:
    """Check DATABASES and their routers."""
    from ..models import IdempotencyRecord  # not above: loads the model

    for using in record_databases():
        if not connections.settings[using]["AUTOCOMMIT"]:
            yield E017(using=using)
        if not kept_in_tenants() and not router.allow_migrate_model(using, IdempotencyRecord):
            yield W002(using=using)
    yield from _uncovered()


@after_settings
def check_migrations(databases: Collection[str] | None = None, **_: Any) -> Iterator[CheckMessage]:
    """Check that the records have their table, for `check --database`.

    `migrate` runs it, too, before it creates that.
    """
    for using in record_databases():
        if using in (databases or ()) and is_unmigrated(using):
            yield W080(using=using)


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


def is_unmigrated(using: str) -> bool:
    """Is there a migration that is not applied? It connects."""
    if kept_in_tenants():
        return False
    executor = MigrationExecutor(connections[using])
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes("django_idempotency")))


def _uncovered() -> Iterator[CheckMessage]:
    store = built(conf.get("STORE"))
    if (
        conf.get("GUARANTEE") != Guarantee.ATOMIC
        or store is None
        or (using := store.rows_in) is None
    ):
        return
    holders = record_databases()
    places = {_place(connections.settings[using]) for using in holders}
    for other, options in connections.settings.items():
        mirrors = options.get("TEST", {}).get("MIRROR")
        if (
            other not in holders
            and not mirrors
            and served(vendor_of(other))
            and _place(options) not in places
        ):
            yield W001(other=other, using=using)


def _place(options: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(options.get(name, "")) for name in ("ENGINE", "HOST", "PORT", "NAME"))


_OURS = "django_idempotency"


def kept_in_tenants() -> bool:
    """Is our table in each tenant's schema, and not in the shared one?"""
    shared = getattr(settings, "SHARED_APPS", None)
    tenants = getattr(settings, "TENANT_APPS", None)
    if not apps.is_installed("django_tenants") or shared is None or tenants is None:
        return False
    return _names_us(tenants) and not _names_us(shared)


def _names_us(installed: Any) -> bool:
    return any(name == _OURS or name.startswith(f"{_OURS}.apps.") for name in installed)
