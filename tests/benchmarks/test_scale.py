"""What the bench of large tables does when a fill of its table was cut short."""

from __future__ import annotations

import pytest
from django.db import Error, connection, transaction

from benchmarks.filling import fill
from benchmarks.scale import KNOWN, newest
from benchmarks.store import TABLE
from tests.stores.helpers import committed


@committed
@pytest.mark.skipif(connection.vendor != "postgresql", reason="it measures PostgreSQL")
def test_a_fill_that_was_killed() -> None:
    """The rows that it leaves are dead: the newest living records come before them."""
    fill(TABLE, 100)
    with pytest.raises(Error), transaction.atomic():
        fill(TABLE, 2 * KNOWN)  # its VACUUM is refused in a transaction, after the rows are there
    assert len(newest(TABLE)) == 100
