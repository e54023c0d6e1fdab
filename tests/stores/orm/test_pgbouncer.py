"""Behind PgBouncer in transaction mode, where each transaction may have another session of the
server.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from django_idempotency.core.rules import Execute, Replay
from django_idempotency.testing.tickets import make_ticket

from ...support.database_servers import pgbouncer
from ...support.services import needs_pgbouncer
from ..helpers import OUTCOME, Call, atomic_ticket, connected_otherwise, effects, together

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="it is in front of PostgreSQL"),
    pytest.mark.slow,
    needs_pgbouncer,
]


@pytest.fixture
def pooled(db: None) -> Iterator[None]:
    place = {
        name.lower(): str(connection.settings_dict[name])
        for name in ("HOST", "PORT", "USER", "PASSWORD")
    }
    with pgbouncer(**place) as server, connected_otherwise(HOST="127.0.0.1", PORT=str(server.port)):
        yield


@pytest.mark.parametrize("make", [atomic_ticket, make_ticket], ids=["atomic", "lease"])
def test_one_key(pooled: None, make: type) -> None:
    """Of many requests at once one runs, and all later ones get its response."""
    calls = [lambda: Call(make(key="one", lease=30)).run() for _ in range(8)]
    assert [type(verdict) for verdict in together(calls)].count(Execute) == 1
    assert Call(make(key="one")).run() == Replay(outcome=OUTCOME, attempt=1)
    assert effects() == 1
