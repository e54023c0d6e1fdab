"""The handler from the docs page on AWS Lambda's durable functions, under their own SDK and its
runner.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="The SDK needs Python 3.11")


@pytest.mark.slow
def test_the_page() -> None:
    """It sleeps for twelve hours and resumes; a call in the meantime is refused, a later call gets
    its result.
    """
    environment = {
        name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"
    }
    ran = subprocess.run(
        [sys.executable, "-m", "tests.contrib.steps.durable.durable"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    printed = json.loads(ran.stdout.splitlines()[-1])
    done = ["SUCCEEDED", {"order": "o-17", "charge": "ch_1"}]
    assert printed["answers"] == [done, ["FAILED", "django_idempotency.errors.InProgress"], done]
    assert printed["charges"] == [["o-17", 5]]
    assert printed["invocations"] == [1, 1, 2]
