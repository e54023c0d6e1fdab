"""Each server that `make reach` tests has a run in the matrix; the page about databases refuses none
that has a dialect.
"""

from __future__ import annotations

from django_idempotency.stores.orm.dialects import served
from tests.proofs.reach.__main__ import SERVERS

from .. import matrix
from .pages import table

PAGE = "how-to/store-in-the-database.md"


def test_each_server_of_make_reach_has_a_run() -> None:
    """The page of proof has a row for each of them."""
    ran = {run.name for run in matrix.load() if run.by.startswith("make reach")}
    assert ran == set(SERVERS)


def test_what_is_refused_has_no_dialect() -> None:
    """These are the names by which their Django backends are known."""
    refused = {name for name, what, _ in table(PAGE, "## Refused") if what.startswith("`E015`")}
    assert refused == {"CockroachDB", "TiDB", "Spanner, Oracle, SQL Server"}
    assert not any(map(served, ("cockroachdb", "tidb", "spanner", "oracle", "microsoft")))
