"""The checks of an ORM store's options, and of the database that it is in.

Nothing here connects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage

from ..check_messages import Finding, shown
from ..database_checks import vendor_of
from .dialects import served


class E015(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] uses the database "%(using)s", whose kind is "%(vendor)s".

    Type "OPTIONS": {"using": …} with a database of PostgreSQL, MariaDB, MySQL or SQLite, or
    register a dialect for this kind.
    """


class E016(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"]["OPTIONS"]["durable_claims"] is %(found)s.

    Type True, or leave it out; or False, if all that this store guards writes in its database only.
    """


class I016(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"]["OPTIONS"] has "durable_claims": False. On the database
    "%(using)s", which is not PostgreSQL, it saves nothing, and may_have_acted is refused all the
    same.

    Take it out of OPTIONS.
    """


def check_durable_claims(alias: str, using: Any, durable_claims: Any) -> Iterator[CheckMessage]:
    """Check what a store's claims are said to be, and whether that has an effect on its
    database.
    """
    if not isinstance(durable_claims, bool):
        yield E016(alias=alias, found=shown(durable_claims))
    elif not durable_claims and vendor_of(using) not in {None, "postgresql"}:
        yield I016(alias=alias, using=using)


def check_dialect(alias: str, using: Any) -> Iterator[CheckMessage]:
    """Check that a dialect is there for a store's database."""
    vendor = vendor_of(using)
    if vendor is not None and not served(vendor):
        yield E015(alias=alias, using=using, vendor=vendor)
