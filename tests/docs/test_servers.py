"""The page of proof names the servers that `make reach` tests; that about databases refuses none
that has a dialect.
"""

from __future__ import annotations

import re

from django_idempotency.stores.orm.dialects import served
from tests.proofs.reach.__main__ import SERVERS

from .pages import checked, table

PAGE = "how-to/store-in-the-database.md"
TESTED = "explanation/proof.md"


def test_each_server_of_make_reach_has_its_row() -> None:
    """The table has the servers of `make reach`, with the number of tests that passed."""
    rows = {
        code[1]: passed
        for name, _, passed in checked(TESTED, "reach")
        if (code := re.search(r"`([\w.-]+)`", name))
    }
    assert list(rows) == list(SERVERS)
    assert [name for name, passed in rows.items() if not passed.isdigit()] == []


def test_what_is_refused_has_no_dialect() -> None:
    """These are the names by which their Django backends are known."""
    refused = {name for name, what, _ in table(PAGE, "## Refused") if what.startswith("`E015`")}
    assert refused == {"CockroachDB", "TiDB", "Spanner, Oracle, SQL Server"}
    assert not any(map(served, ("cockroachdb", "tidb", "spanner", "oracle", "microsoft")))
