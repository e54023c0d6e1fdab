"""The database of a row that names a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import DEFAULT_DB_ALIAS, connections, router

if TYPE_CHECKING:
    from django.db.models import Model


def database_of(model: type[Model], row: Model) -> str | None:
    """Return where a row would be saved, whichever replica it was read from; `None` for the default database."""
    alias = router.db_for_write(model, instance=row)
    # No router has led away from a replica. An alias that was added at run time may have no such entry.
    primary = connections.settings.get(alias, {}).get("TEST", {}).get("MIRROR") or alias
    return None if primary == DEFAULT_DB_ALIAS else primary
