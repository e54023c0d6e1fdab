"""fetch.js: its rules, in Node.js, and that no problem of the package is without one.

In a browser: tests/proofs/browser.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders

from django_idempotency.contrib.publishing.policies import published_problems
from django_idempotency.errors import Problem

from ...support.services import needs_node, program

CASES = Path(__file__).with_name("fetch.test.mjs")

#: Code of a problem → what becomes of the request and its key. "keep": somebody looks the result
#: up, or waits.
VERDICTS = {
    "key-missing": "drop",
    "key-malformed": "drop",
    "key-too-short": "drop",
    "key-foreign": "drop",
    "key-not-issued": "drop",
    "key-expired": "keep",
    "key-ahead": "drop",
    "key-unsupported": "drop",
    "scope-required": "drop",
    "request-too-large": "drop",
    "body-incomplete": "again",
    "request-mismatch": "drop",
    "in-progress": "again",
    "too-many-keys": "again",
    "possible-duplicate": "keep",
    "response-not-stored": "drop",
    "operation-held": "keep",
    "key-too-old": "keep",
    "replay-refused": "keep",
    "replay-unchecked": "keep",
    "operation-cancelled": "keep",
    "operation-undone": "drop",
    "key-unknown": "drop",
    "record-unreadable": "keep",
    "store-unavailable": "again",
    "transaction-lost": "again",
    "outcome-unknown": "again",
    "try-again": "again",
    "writes-rolled-back": "again",
}


def problems() -> dict[str, type[Problem]]:
    """Return all problems by their codes."""
    found, classes = {}, [Problem]
    while classes:
        cls = classes.pop()
        classes.extend(cls.__subclasses__())
        if cls.__module__ == Problem.__module__ and "code" in vars(cls):
            found[cls.code] = cls
    return found


def test_every_problem_has_a_verdict() -> None:
    """A new problem is decided on here, and then in the script."""
    assert {each.code for each in published_problems()} <= VERDICTS.keys()
    assert VERDICTS.keys() == problems().keys()


@needs_node
@pytest.mark.slow  # it starts a process
def test_the_rules() -> None:
    """Every case of fetch.test.mjs."""
    node, script = program("node"), finders.find("django_idempotency/fetch.js")
    assert node is not None
    assert isinstance(script, str)
    statuses = {code: cls.status for code, cls in problems().items()}
    given = [[statuses[code], code, verdict] for code, verdict in VERDICTS.items()]
    environment = {**os.environ, "SCRIPT": script, "PROBLEMS": json.dumps(given)}
    done = subprocess.run(
        [node, "--test", str(CASES)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
