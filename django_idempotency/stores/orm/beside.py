"""A thread's second connection, beside one with an open transaction: what it commits is committed at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from django.core import mail
from django.core.signals import request_finished, request_started
from django.db import connections

from ...concurrency.forking import reset_in_children
from .dialects import dialect

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class _Kept(threading.local):
    """This thread's second connections, by alias, with their facts. They close as Django's own do (CONN_MAX_AGE)."""

    def __init__(self) -> None:
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        self.connections: dict[str, tuple[BaseDatabaseWrapper, tuple[Any, ...]]] = {}

    def close_old(self, **_: Any) -> None:
        in_test = hasattr(mail, "outbox")  # set by setup_test_environment(); an open one blocks dropping the database
        for connection, _facts in self.connections.values():
            if in_test:
                connection.close()
            else:
                connection.close_if_unusable_or_obsolete()


_KEPT = _Kept()
reset_in_children(_KEPT)
request_started.connect(_KEPT.close_old, weak=False)
request_finished.connect(_KEPT.close_old, weak=False)


def beside(connection: BaseDatabaseWrapper) -> BaseDatabaseWrapper | None:
    """Return the second connection; `None` if its commits would not be seen, or would go to another schema."""
    query = dialect(connection).beside(connection)
    if query is None:
        return None
    facts = _ask(connection, query)
    if not facts[0]:
        return None
    other, known = _KEPT.connections.get(connection.alias) or (_made(connection), ())
    if other.connection is None:
        known = _ask(other, query)
        _KEPT.connections[connection.alias] = other, known
    return other if known == facts else None


def _ask(connection: BaseDatabaseWrapper, query: str) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return tuple(cursor.fetchone())


def _made(connection: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
    """Create it outside the pool: requests that hold all of a pool's connections would wait for each other."""
    other: BaseDatabaseWrapper = connections.create_connection(connection.alias)
    options = {name: value for name, value in connection.settings_dict["OPTIONS"].items() if name != "pool"}
    other.settings_dict = {**connection.settings_dict, "OPTIONS": options}
    return other
