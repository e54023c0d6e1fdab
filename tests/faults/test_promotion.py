"""An asynchronous replica of PostgreSQL takes over, and lacks what was committed last."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ..support.services import needs_postgresql_server
from .promotion import LOST, REPLICATED
from .servers import ROOT


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.either_server  # it starts servers of its own
@needs_postgresql_server
def test_a_promoted_replica_has_record_and_writes_or_neither() -> None:
    """With `atomic` a retry repeats what the failover has lost, and nothing else: each key has one
    effect.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", "-m", "tests.faults.promotion"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kept, lost = {key: [1, 1, 1] for key in REPLICATED}, {key: [0, 0, 1] for key in LOST}
    assert json.loads(done.stdout) == {**kept, **lost}
