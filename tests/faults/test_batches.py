"""`kill -9` of a process in the middle of a batch: the next run continues where it was."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .batches import RECORDS, charge
from .database import effects, record
from .plans import Faults, until
from .servers import ROOT, environment

pytestmark = [
    pytest.mark.either_server,
    pytest.mark.faults,
    pytest.mark.django_db(transaction=True),
]

#: The record at which the process dies.
VICTIM = 7


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.batches"],
        cwd=ROOT,
        env=environment(folder, {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "point",
    [
        "claimed",
        "guarded",
        pytest.param("writing", marks=pytest.mark.sqlite),
        "settled",
        "committing",
        "committed",
    ],
)
def test_killed_in_a_batch(faults: Faults, tmp_path: Path, point: str) -> None:
    """Records before the kill are replayed, it and those after it run: every record has its effect
    once.
    """
    keys = [charge.idempotency.key_for(each) for each in RECORDS]
    faults(keys[VICTIM], point, "kill")
    killed = run(tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = VICTIM + (point == "committed")
    assert [effects(key) for key in keys] == [1] * done + [0] * (len(keys) - done)

    counts: list[dict[str, Any]] = []

    def completes() -> bool:
        # With `atomic` its key is free as soon as the row is not locked and CLAIM_LEASE is over.
        again = run(tmp_path)
        assert again.returncode == 0, again.stderr
        counts.append(json.loads(again.stdout))
        return bool(counts[-1]["busy"] == 0)

    until(completes, "the whole batch is done")
    first = counts[0]
    assert first["replayed"] == done
    assert first["succeeded"] + first["busy"] == len(keys) - done
    assert first["busy"] <= 1
    assert counts[-1]["failed"] == 0
    assert [effects(key) for key in keys] == [1] * len(keys)
    assert record(keys[VICTIM]).attempt == (1 if point == "committed" else 2)
