"""PostgreSQL wakes an idle relay: a trigger on the table notifies at COMMIT, and `idempotency_relay
--listen` listens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.db import connections, router
from django.db.migrations.operations.base import Operation

from ...errors import ConfigurationError
from .models import Message

#: The channel, the trigger and its function.
NAME = "idempotency_outbox_notify"
#: Seconds between two checks whether to stop.
NAP = 0.1
TABLE = Message._meta.db_table
CREATE = f"""
CREATE OR REPLACE FUNCTION {NAME}() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_notify('{NAME}', ''); RETURN NULL; END $$;
CREATE TRIGGER {NAME} AFTER INSERT ON {TABLE} FOR EACH STATEMENT EXECUTE FUNCTION {NAME}();
"""
DROP = f"DROP TRIGGER IF EXISTS {NAME} ON {TABLE}; DROP FUNCTION IF EXISTS {NAME}();"


class NotifyRelay(Operation):
    """Let each commit that wrote messages notify relays. An operation for a migration of the
    project's.

    That migration depends on `("idempotency_outbox", "0001_initial")`. On databases other than
    PostgreSQL it does nothing.
    """

    reduces_to_sql = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Models do not know it."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        self._execute(schema_editor, CREATE)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        self._execute(schema_editor, DROP)

    def describe(self) -> str:
        return "Notify relays of messages in the outbox"

    def _execute(self, schema_editor: Any, sql: str) -> None:
        connection = schema_editor.connection
        if connection.vendor == "postgresql" and router.allow_migrate(
            connection.alias, Message._meta.app_label
        ):
            schema_editor.execute(sql, params=None)


class Listener:
    """Listens on the relay's own connection, and does so anew when that is another."""

    def __init__(self, using: str, stopping: Callable[[], bool]) -> None:
        self._connection = connections[using]
        self._stopping = stopping
        self._listening: Any = None
        if self._connection.vendor == "postgresql":
            # Not above: loads the driver.
            from django.db.backends.postgresql.psycopg_any import (
                is_psycopg3,
            )

            if is_psycopg3:
                return
        raise ConfigurationError(
            "--listen needs PostgreSQL and psycopg 3. Leave it out: the relay polls."
        )

    def wait(self, seconds: float) -> None:
        """Return when there may be messages, or the relay is to stop, or after some seconds."""
        until = time.monotonic() + seconds
        while not (self._stopping() or self.heard(NAP)) and time.monotonic() < until:
            pass

    def heard(self, seconds: float) -> bool:
        """Wait up to some seconds.

        Return whether there may be messages that the relay has not looked for.

        Raises `ConfigurationError` without the trigger, and what the database raises.
        """
        with self._connection.wrap_database_errors:
            if (
                self._connection.connection is None
                or self._connection.connection is not self._listening
            ):
                self._listen()
                return True  # what was committed before has notified nobody here
            return bool(list(self._listening.notifies(timeout=seconds, stop_after=1)))

    def _listen(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT 1 FROM pg_trigger WHERE tgrelid = %s::regclass AND tgname = %s",
                [TABLE, NAME],
            )
            if cursor.fetchone() is None:
                raise ConfigurationError(
                    "Nothing notifies of messages. Put NotifyRelay() into the operations "
                    "of a migration: "
                    f"from {__name__} import NotifyRelay. Or leave out --listen."
                )
            cursor.execute(f"LISTEN {NAME}")
        self._listening = self._connection.connection
