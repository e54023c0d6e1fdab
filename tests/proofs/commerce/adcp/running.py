"""Run one storyboard, and say what its steps lack."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import environment
from .buyer import STEPS, Buyer

#: The buyer; our own steps have another, whose rate the storyboards have not used.
TOKENS = ("the-buyer-of-the-runner", "our-buyer")
#: Seconds for one storyboard.
LIMIT = 120
Json = dict[str, Any]


def run(path: Path, url: str, packages: Path) -> Json:
    """Let AdCP's runner run a storyboard."""
    told = {"url": url, "file": str(path), "token": TOKENS[0], "packages": str(packages)}
    command = ["node", str(environment.HERE / "run.cjs"), json.dumps(told)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise RuntimeError(f"The runner has failed:\n{done.stderr}")
    ran: Json = json.loads(done.stdout)
    return ran


def said(result: Json) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return of each step what keeps it from having passed in full."""
    for step in (step for phase in result["phases"] for step in phase["steps"]):
        if step.get("skipped"):
            yield step["step_id"], (f"skipped: {step['skip_reason']}",)
            continue
        ungraded = [
            f"ungraded: {each['check']}"
            for each in step["validations"]
            if each.get("not_applicable")
        ]
        failed = [
            f"failed: {each['description']}: {each.get('error')}"
            for each in step["validations"]
            if not each["passed"]
        ]
        trouble = [] if step["passed"] or failed else [f"failed: {step.get('error')}"]
        yield step["step_id"], (*ungraded, *failed, *trouble)


def ours(storyboard: Json, url: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Take those steps of a storyboard that are ours, and return of each what was missed."""
    steps = {step["id"]: step for phase in storyboard["phases"] for step in phase["steps"]}
    for name, take in STEPS.items():
        if name in steps:
            buyer = Buyer(url, TOKENS[1])
            take(buyer, steps[name])
            yield f"{name}, {take.__name__}", tuple(buyer.missed)
