"""Run AdCP's storyboards by its own runner against a seller, and compare what it says with
`differences.py`.

    python -m tests.proofs.commerce adcp

The runner is installed into .cache/adcp, from npm. Nothing is sent anywhere else than to a server
on this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ...environments import Unavailable
from . import environment, running
from .differences import DIFFERENCES

STORYBOARDS = environment.HERE / "storyboards"


def main(_arguments: Sequence[str] = ()) -> int:
    """Run the storyboards. 0: each step passes, or differs as is known."""
    try:
        packages = environment.build()
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    graded = 0
    for path in sorted(STORYBOARDS.glob("*.yaml")):
        with environment.serving() as url:
            ran = running.run(path, url, packages)
            name, steps = ran["storyboard"]["id"], list(running.said(ran["result"]))
            own = list(running.ours(ran["storyboard"], url))
        graded += sum(not sentences for _, sentences in (*steps, *own))
        found |= {(name, step): sentences for step, sentences in (*steps, *own) if sentences}
        print(f"{name}: {len(steps)} steps by AdCP's runner, {len(own)} of ours")
    known = {(each.storyboard, each.step): each.said for each in DIFFERENCES}
    wrong = [
        place
        for place in sorted(found.keys() | known.keys())
        if found.get(place) != known.get(place)
    ]
    for place in wrong:
        print(
            f"  {' / '.join(place)}: {found.get(place, 'passed')}, not {known.get(place, 'passed')}"
        )
    print(f"{graded} passed, {len(found)} differ{'' if wrong else ', as differences.py explains'}")
    return int(bool(wrong) or not graded)
