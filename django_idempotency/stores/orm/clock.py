"""The clock of the database that runs a statement, for tables which Django's ORM reads and writes.

Deadlines of a row are written and compared by its own database: the clocks of hosts differ, and a
purge on one of them must not take what another has just written.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import Expression

from ...models import InstantField
from .dialects import dialect

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class Clock(Expression):
    """The time at this statement, or that much later."""

    def __init__(self, later: timedelta = timedelta(0)) -> None:
        super().__init__(output_field=InstantField())
        self.later = later

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> tuple[str, tuple[Any, ...]]:
        """Return the SQL of the database's dialect. Raises `ConfigurationError` if it has none."""
        here = dialect(connection)
        return f"({here.later})", (here.delay(self.later.total_seconds()),)
