"""Checks of the databases under the stores. Only `check --deploy` connects to them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage
from django.db import Error, connections, router
from django.db.migrations.executor import MigrationExecutor

from .. import conf
from ..core.records import Guarantee
from ..stores.base import BaseStore
from ..stores.database_checks import vendor_of
from ..stores.orm.dialects import served
from .catalogue import finding, shown
from .database_servers import on_server
from .settings import check_settings
from .stores import built
from .tenants import kept_in_tenants

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def check_databases(**_: Any) -> list[CheckMessage]:
    """Check DATABASES and their routers without connecting."""
    return [] if check_settings() else [*_manual(), *_uncovered(), *_kept_out(), *_pooled()]


def check_deployment(databases: Collection[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check that the databases of the ORM stores free the keys of a dead or hanging worker in time."""
    if check_settings():
        return []
    found: list[CheckMessage] = []
    for using in _aliases():
        if databases is None or using in databases:
            found += _asked(connections[using])
    return found


def check_migrations(databases: Collection[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check that the records have their table, for `check --database`. `migrate` runs it, too, before it creates that."""
    if databases is None or check_settings():
        return []
    return [finding("W080", using=using) for using in _aliases() if using in databases and _unmigrated(using)]


def _aliases() -> list[str]:
    """Return the databases that hold records."""
    found = [_rows_in(built(alias)) for alias in conf.get("STORES")]
    return list(dict.fromkeys(using for using in found if using is not None))


def _rows_in(store: BaseStore | None) -> str | None:
    return None if store is None else store.rows_in


# ---------------------------------------------------------------------------------------------------- without asking


def _manual() -> Iterator[CheckMessage]:
    for using in _aliases():
        if not connections.settings[using]["AUTOCOMMIT"]:
            yield finding("E017", using=using)


def _uncovered() -> Iterator[CheckMessage]:
    using = _rows_in(built(conf.get("STORE")))
    if conf.get("GUARANTEE") != Guarantee.ATOMIC or using is None:
        return
    holders = _aliases()
    places = {_place(connections.settings[using]) for using in holders}
    for other, settings in connections.settings.items():
        mirrors = settings.get("TEST", {}).get("MIRROR")
        if other not in holders and not mirrors and served(vendor_of(other)) and _place(settings) not in places:
            yield finding("W001", other=other, using=using)


def _place(settings: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(settings.get(name, "")) for name in ("ENGINE", "HOST", "PORT", "NAME"))


def _kept_out() -> Iterator[CheckMessage]:
    from ..models import IdempotencyRecord  # not above: loads the model

    for using in _aliases():
        if not kept_in_tenants() and not router.allow_migrate_model(using, IdempotencyRecord):
            yield finding("W002", using=using)


def _pooled() -> Iterator[CheckMessage]:
    """Find backends with a pool of their own, such as django-db-connection-pool and django-db-geventpool."""
    for using in _aliases():
        settings = connections.settings[using]
        if "POOL_OPTIONS" in settings or "pool" in settings["ENGINE"]:
            yield finding("W079", using=using, engine=settings["ENGINE"])


# ------------------------------------------------------------------------------------------------------------ asking


def _unmigrated(using: str) -> bool:
    if kept_in_tenants():
        return False
    executor = MigrationExecutor(connections[using])
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes("django_idempotency")))


def _asked(connection: BaseDatabaseWrapper) -> list[CheckMessage]:
    try:
        with connection.cursor() as cursor:
            found = list(on_server(connection, cursor))
            if _unmigrated(connection.alias):
                found.append(finding("E050", using=connection.alias))
    except Error as error:
        return [finding("W050", using=connection.alias, error=shown(error))]
    return found
