"""A server dies right after a bank was paid that takes no keys: the retry knows that an attempt may
have acted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from ..support.services import needs_mariadb_server, needs_postgresql_server
from .durable_claims import KEYS
from .servers import ROOT

# It starts servers of its own.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.either_server,
]


def outcomes(*arguments: str) -> dict[str, Any]:
    """Return what became of each key: how often the bank was paid, and what each attempt was
    told.
    """
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::ResourceWarning",
            "-m",
            "tests.faults.durable_claims",
            *arguments,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.keys() == set(KEYS)
    return found


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("postgresql", marks=needs_postgresql_server),
        pytest.param("mariadb", marks=needs_mariadb_server),
    ],
)
def test_a_crash_of_the_server(kind: str) -> None:
    """Twenty of twenty attempts are on disk, and so are the takeovers after them; each order is
    paid once.
    """
    told = [[1, False], [2, True], [3, True]]
    assert outcomes("crash", kind) == {key: [1, told] for key in KEYS}


@needs_postgresql_server
def test_a_standby_that_is_promoted() -> None:
    """Under synchronous replication twenty of twenty attempts are on the standby; each order is
    paid once.
    """
    assert outcomes("promotion", "postgresql") == {
        key: [1, [[1, False], [2, True]]] for key in KEYS
    }
