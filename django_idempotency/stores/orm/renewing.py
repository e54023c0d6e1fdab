"""Renews many leases with one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import Error

from ...core.records import Ticket
from . import database_errors
from .executing import written

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from .statements import Statements


def renewed(sql: Statements, connection: BaseDatabaseWrapper, tickets: Sequence[Ticket]) -> set[UUID]:
    """Renew leases whose records are in one table. Return the tokens of those that are still owners."""
    owners = {ticket.owner for ticket in tickets}
    if _count(sql, connection, tickets) == len(owners):  # nearly always: one trip
        return owners
    with connection.cursor() as cursor:
        cursor.execute(*sql.owners(tickets))
        return owners & {sql.owner(row) for row in cursor.fetchall()}


def _count(sql: Statements, connection: BaseDatabaseWrapper, tickets: Sequence[Ticket]) -> int:
    """Renew them together; one by one if a row is locked. A locked row cannot be taken over meanwhile."""
    try:
        return written(connection, sql.renew(tickets))
    except Error as error:
        if not database_errors.lost_race(error):
            raise
        return sum(_count(sql, connection, [ticket]) for ticket in tickets) if len(tickets) > 1 else 0
