"""The check of the database that an ORM store is in. Nothing here connects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage

from ..check_messages import Finding
from ..database_checks import vendor_of
from .dialects import served


class E015(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] uses the database "%(using)s", whose kind is "%(vendor)s".

    Type "OPTIONS": {"using": …} with a database of PostgreSQL, MariaDB, MySQL or SQLite, or register a dialect for
    this kind.
    """


def check_dialect(alias: str, using: Any) -> Iterator[CheckMessage]:
    """Check that a dialect is there for a store's database."""
    vendor = vendor_of(using)
    if vendor is not None and not served(vendor):
        yield E015(alias=alias, using=using, vendor=vendor)
