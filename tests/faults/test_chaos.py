"""`make chaos` in short, and that it can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from django_idempotency.testing.linearizability import Answer, Call, History
from testproject.payments.models import Effect

from ..proofs.chaos import sagas
from ..proofs.chaos.running import report
from ..proofs.chaos.workloads import FOLDER, Sagas
from ..support.services import needs_postgresql_server
from .servers import ROOT

SHORT = {"CHAOS_CLIENTS": "20", "CHAOS_SECONDS": "6", "CHAOS_PAUSE": "1.5"}


@pytest.mark.faults
@pytest.mark.slow
@needs_postgresql_server
def test_postgresql_restarts_under_clients_that_retry() -> None:
    """Twenty clients finish all of their operations through some restarts: charges with one effect
    each, and sagas.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", "-m", "tests.proofs.chaos"],
        cwd=ROOT,
        env={**os.environ, **SHORT},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Each operation has one effect" in done.stdout


def call(key: str, moment: float, answer: Answer, response: str | None = None) -> Call:
    return Call(key=key, invoked=moment, responded=moment + 1, answer=answer, response=response)


def test_what_is_broken() -> None:
    """The report names who has not finished, who has no effect or two, and what no order
    explains.
    """
    history = History()
    for each in (call("good", 0, Answer.EXECUTED, "A"), call("good", 2, Answer.REPLAYED, "A")):
        history.append(each)
    for each in (call("twice", 0, Answer.EXECUTED, "A"), call("twice", 2, Answer.EXECUTED, "B")):
        history.append(each)
    history.append(call("never", 0, Answer.BUSY))
    begun = Counter({"good": 2, "twice": 2, "never": 1})
    crowd: Any = SimpleNamespace(
        history=history,
        begun=begun,
        unfinished=Counter({"never": 1, "good": 0}),
        statuses=Counter({"status 201": 4}),
        slowest=1.0,
        slowest_request=1.0,
    )
    workload: Any = SimpleNamespace(
        atomic=True,
        effects=lambda: {"good": 1, "twice": 2},
        is_abandoned=lambda key: False,
        broken=lambda keys: ["An undo without its step"],
    )
    found = report(workload, crowd, restarts=0)
    assert not found.holds
    assert (found.unfinished, found.wrong) == (["never"], {"never": 0, "twice": 2})
    assert sorted(violation.culprit.key for violation in found.violations) == ["never", "twice"]
    assert "Not finished: never" in str(found)
    assert "An undo without its step" in str(found)


@pytest.mark.django_db
@pytest.mark.any_database
def test_a_broken_saga(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit names an operation that has a step twice, has not ended, or has undone what was not
    done.
    """
    monkeypatch.setenv(FOLDER, str(tmp_path))
    for key in ("good", "twice", "half", "strange"):
        Effect.objects.create(label="order", idempotency_key=key)
        sagas.provider().call("pay", key, "key-1")
    for key in ("good", "twice", "twice"):
        sagas.provider().call("reserve", key, f"key-{len(list(tmp_path.iterdir()))}")
    sagas.provider().call("undo reserve", "strange", "key-2")
    found = [
        line.rpartition(" ")[2] for line in Sagas().broken(["good", "twice", "half", "strange"])
    ]
    assert found == ["twice", "half", "strange"]
    sold_out, abandoned = f"0{'f' * 7}", f"f0{'f' * 6}"
    Effect.objects.create(label="order", idempotency_key=abandoned)
    assert len(list(Sagas().broken([sold_out, abandoned]))) == 2
    Effect.objects.create(label="undo order", idempotency_key=abandoned)
    assert list(Sagas().broken([abandoned])) == []
