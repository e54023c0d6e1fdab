"""`make demo` keeps its promises, and notices a broken one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from testproject.demo.rows import Answer, Promise, Row, exit_code

from ..support.extras import refused_without, refusing

ROOT = Path(__file__).resolve().parent.parent.parent

#: A dependency group, and extras, as in the Makefile.
PACKAGES = ("demo", "client", "prometheus", "rest")

KEPT = Row(
    journey="20 at once",
    sent="alice: order-2",
    promise=Promise(answers=("201",), besides=("201 replayed", "409 in-progress"), effects=(1,)),
    answers=("201", "409 in-progress", "409 in-progress"),
    effects=(1,),
)

#: Each differs from what the row above promised.
BROKEN = {
    "charged twice": {"effects": (1, 1)},
    "not charged": {"effects": ()},
    "charged by another attempt": {"effects": (2,)},
    "two did the work": {"answers": ("201", "201")},
    "nobody did the work": {"answers": ("409 in-progress",)},
    "a server error among them": {"answers": ("201", "500")},
    "no answers": {"answers": ()},
    "something else was wrong": {"complaints": ("other bytes than the first answer",)},
}


def test_kept() -> None:
    """Rows that match their promise end the demo with 0."""
    assert exit_code([KEPT, KEPT]) == 0


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_broken(change: Any) -> None:
    """One broken promise among others ends the demo with 1."""
    assert exit_code([KEPT, replace(KEPT, **change), KEPT]) == 1


@pytest.mark.slow
def test_what_the_extra_does_not_install_is_refused() -> None:
    """The demo is played without pytest, though it is there, and with what Django and the extras of
    the group need.
    """
    refused = refused_without(*PACKAGES)
    assert refused >= {"pytest", "psycopg", "hypothesis"}
    assert refused.isdisjoint(
        {"django", "sqlparse", "gunicorn", "rest_framework", "httpx", "httpcore", "jmespath"}
    )
    done = subprocess.run(
        [sys.executable, "-c", "import pytest"],
        env={**os.environ, **refusing(refused)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ModuleNotFoundError: No module named 'pytest'" in done.stderr


def test_nothing_seen() -> None:
    """A demo that showed nothing has not kept its promise."""
    assert exit_code([]) == 1


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        (Answer(status=201), "201"),
        (Answer(status=201, replayed=True), "201 replayed"),
        (Answer(status=422, code="request-mismatch"), "422 request-mismatch"),
        (Answer(status=409, code="in-progress", retry_after=1), "409 in-progress"),
        # A retry storm.
        (
            Answer(status=409, code="in-progress", retry_after=0),
            "409 in-progress without Retry-After",
        ),
        (Answer(status=409, code="in-progress"), "409 in-progress without Retry-After"),
        (Answer(status=None), "no answer"),  # its worker was killed
    ],
)
def test_label(answer: Answer, label: str) -> None:
    """The label has everything that is promised of a response."""
    assert answer.label == label


def test_seen() -> None:
    """A row shows equal responses once, and counts them."""
    assert KEPT.seen == "201\n2 x 409 in-progress"
    assert KEPT.counted == "1 / 1"
    assert replace(KEPT, effects=()).counted == "0 / 1"
    assert replace(KEPT, answers=("201",), effects=(2,)).seen == "201\nas attempt 2"


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.skipif(
    "sqlite" not in settings.DATABASES["default"]["ENGINE"], reason="the demo brings its own SQLite"
)
def test_the_demo() -> None:
    """It plays all journeys on a real server with a worker killed, ends with 0, and leaves no
    server behind.

    Neither it nor its server can import what the extra `demo` does not install.
    """
    command = [sys.executable, "-m", "testproject.demo"]
    environment = {**os.environ, "DEMO_EXIT": "1", **refusing(refused_without(*PACKAGES))}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as demo:
        try:
            output, errors = demo.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            demo.send_signal(signal.SIGTERM)  # not kill(): it stops its server first
            output, errors = demo.communicate(timeout=60)
    assert demo.returncode == 0, output + errors
    assert "steps are as promised." in output
    assert output.count("✔") == 15
    assert "✘" not in output
    assert errors == ""
