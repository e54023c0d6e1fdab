"""Checks of the outbox. Nothing here connects: a publisher class is imported, not instantiated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.checks import CheckMessage
from django.db import connections, router

from ...api import Finding, setting
from ...checks.settings import after_settings
from ...stores.check_messages import one_line, shown, type_named
from ...stores.database_checks import vendor_of
from .models import Message
from .publishing import publisher_at

#: Django's own default, as spelled in its options for MySQL.
READ_COMMITTED = "read committed"


class E045(Finding):
    """IDEMPOTENCY["OUTBOX_PUBLISHER"] = %(value)s cannot publish: %(problem)s.

    Type "OUTBOX_PUBLISHER": "shop.broker.Publisher", the dotted path of a class with a method
    publish(message), or of a function publish(message).
    """


class W065(Finding):
    """The outbox is in the database "%(using)s", whose isolation level is "%(level)s": a relay does
    not see what is committed while it scans, so messages with the same key may be sent out of
    order.

    Take "isolation_level" out of DATABASES["%(using)s"]["OPTIONS"]: Django's own default is READ
    COMMITTED.
    """


@after_settings
def check_outbox(**_: Any) -> Iterator[CheckMessage]:
    """Check OUTBOX_PUBLISHER, and the database that the outbox is in."""
    yield from _publisher()
    using = router.db_for_write(Message)
    level = _level(using, connections.settings[using].get("OPTIONS", {}))
    if level != READ_COMMITTED:
        yield W065(using=using, level=level)


def _publisher() -> Iterator[CheckMessage]:
    path = setting("OUTBOX_PUBLISHER")
    if path is None:
        return  # idempotency_relay also takes it as an option
    if not isinstance(path, str):
        yield E045(value=type_named(path), problem="it is not a dotted path")
    else:
        try:
            publisher_at(path)
        except Exception as error:  # noqa: BLE001 - importing runs the project's code
            yield E045(value=shown(path), problem=one_line(error))


def _level(using: str, options: Mapping[str, Any]) -> str:
    """Return the name of a database's isolation level.

    It does not matter for SQLite, where writers are serialized.
    """
    vendor = vendor_of(using)
    if (
        vendor
        not in (
            "mysql",
            "postgresql",
        )
        or "isolation_level" not in options
    ):
        return READ_COMMITTED
    level = options["isolation_level"]
    if vendor == "mysql":
        return "the server's default" if level is None else str(level).lower()
    # Not above: loads the driver.
    from django.db.backends.postgresql.psycopg_any import (
        IsolationLevel,
    )

    try:
        return str(IsolationLevel(level).name).replace("_", " ").lower()
    except ValueError:  # Django will report it
        return READ_COMMITTED
