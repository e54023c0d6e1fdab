"""The shop as one more suite: `python -m shop` opens it, buys in it and closes it, in the suites'
environment.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from ..environments import inherited
from .environment import PYTHON
from .running import RESULTS, Cut, call, tail
from .suites import HERE

NAME = "shop"


def run(deadline: float) -> tuple[str, list[str]]:
    """Return the result in words, and a sentence for each thing that is wrong."""
    started = time.monotonic()
    log = RESULTS / f"{NAME}.log"
    environment = {**inherited(), "PYTHONPATH": str(HERE)}
    try:
        code = call([str(PYTHON), "-m", NAME], HERE, environment, log, deadline)
    except Cut as cut:
        return "", [str(cut)]
    if code:
        return "", [f"The shop is not as it should be. The end of its output:\n{tail(log)}"]
    return f"{in_words(json.loads(tail(log, 1)))} {time.monotonic() - started:.0f} s.", []


def in_words(found: Mapping[str, Mapping[str, Any]]) -> str:
    alone, at_once, killed = found["without a key"], found["at once"], found["killed"]
    return (
        f"The shop: 20 orders placed at once under one key are {at_once['orders']} order "
        f"and {at_once['replays']} "
        f"replays; without a key {alone['orders']} order, and {20 - alone['thanked']} of "
        "20 see an error. "
        f"A worker killed in the middle and the retry: {killed['orders']} order. "
        f"{sum(each['keys'] for each in found.values())} keys, each guarded."
    )
