"""`make chaos` in short, and that it can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from django_idempotency.testing.linearizability import Answer, Call, History

from ..chaos.running import report
from ..support.services import needs_postgresql_server
from .servers import ROOT

SHORT = {"CHAOS_CLIENTS": "20", "CHAOS_SECONDS": "6", "CHAOS_PAUSE": "1.5"}


@pytest.mark.faults
@pytest.mark.slow
@needs_postgresql_server
def test_postgresql_restarts_under_clients_that_retry() -> None:
    """Twenty clients finish all of their operations, each with one effect, through some restarts."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", "-m", "tests.chaos"],
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
    """The report names who has not finished, who has no effect or two, and what no order explains."""
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
    workload: Any = SimpleNamespace(effects=lambda: {"good": 1, "twice": 2})
    found = report(workload, crowd, restarts=0)
    assert not found.holds
    assert (found.unfinished, found.wrong) == (["never"], {"never": 0, "twice": 2})
    assert sorted(violation.culprit.key for violation in found.violations) == ["never", "twice"]
    assert "Not finished: never" in str(found)
