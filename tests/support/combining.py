"""May PostgreSQL get several statements in one message?

Not with psycopg 2, server-side binding or `combine=False`.

STORE_OPTIONS='{"combine": false}' gives that option to every ORM store of a run.
"""

from __future__ import annotations

import json
import os

from django.db import connection

from django_idempotency.stores.orm import ORMStore

#: The option of the run's stores.
COMBINE: bool = json.loads(os.environ.get("STORE_OPTIONS", "{}")).get("combine", True)


def _combined() -> bool:
    if connection.vendor != "postgresql" or connection.settings_dict["OPTIONS"].get(
        "server_side_binding"
    ):
        return False
    from django.db.backends.postgresql.psycopg_any import is_psycopg3  # not above: imports a driver

    return COMBINE and is_psycopg3


#: What comes of it with the run's driver.
COMBINED = _combined()
#: The database's kind, as the tables of the tests name it. MariaDB and MySQL have one vendor.
KIND = {
    "postgresql": "postgresql" if COMBINED else "postgresql, apart",
    "mysql": os.environ.get("DATABASE", ""),
}.get(connection.vendor, connection.vendor)


def set_default() -> None:
    """Give the option of the run to the stores that tests make without options."""
    defaults = ORMStore.__init__.__kwdefaults__
    assert defaults is not None
    defaults["combine"] = COMBINE
