"""The suite itself, file by file."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from .....faults.proxy import Proxy
from ....foreign.reports import Outcome, complaints, differences, read
from ..differences import DIFFERENCES, TESTS
from ..program import SUITE, python

#: How many tests each of its files has.
FILES = {
    path.stem: path.read_text(encoding="utf-8").count("\n  def test_")
    for path in sorted(SUITE.glob("*_test.py"))
}


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [each.getsockname()[1] for each in sockets]


@pytest.mark.parametrize("name", FILES)
def test_the_suite(name: str, server: Proxy, tmp_path: Path) -> None:
    """Each of its tests passes, but for those that are listed, each of which fails as it says
    there.
    """
    agent, webhooks = free_ports(2)
    report = tmp_path / "report.xml"
    done = subprocess.run(
        [
            *(str(python()), f"{name}.py", f"--server_url=http://127.0.0.1:{server.port}"),
            *(f"--mock_agent_port={agent}", f"--mock_webhook_port={webhooks}"),
            *(
                f"--simulation_secret={os.environ['COMMERCE_SECRET']}",
                f"--xml_output_file={report}",
            ),
        ],
        cwd=SUITE,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert report.exists(), done.stderr
    outcomes = {test.rpartition(".")[2]: outcome for test, outcome in read(report).items()}
    found = differences(dict.fromkeys(outcomes, Outcome(state="passed")), outcomes)
    assert len(outcomes) == FILES[name]
    assert complaints(found, [each for each in DIFFERENCES if each.suite == name]) == []


def test_the_list_is_of_this_suite() -> None:
    """It counts the suite's tests, and names none of its files that is not there."""
    assert sum(FILES.values()) == TESTS
    assert {each.suite for each in DIFFERENCES} <= set(FILES)
