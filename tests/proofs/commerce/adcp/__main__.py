"""Run AdCP's storyboards by its own runner against a seller, and compare what is said with `differences.py`.

    python -m tests.proofs.commerce.adcp [idempotency] [read-tool-idempotency]

The runner is installed into .cache/adcp, from npm. Nothing is sent anywhere else than to a server on this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import environment, running
from .differences import DIFFERENCES

STORYBOARDS = environment.HERE / "storyboards"


def main(arguments: Sequence[str]) -> int:
    """Run the named storyboards, or all. 0: each step passes, or differs as is known."""
    try:
        packages = environment.build()
    except environment.Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    graded = 0
    for path in sorted(STORYBOARDS.glob("*.yaml")):
        if arguments and path.stem not in arguments:
            continue
        with environment.serving() as url:
            ran = running.run(path, url, packages)
            name, steps = ran["storyboard"]["id"], list(running.said(ran["result"]))
            own = list(running.ours(ran["storyboard"], url))
        graded += sum(not sentences for _, sentences in (*steps, *own))
        found |= {(name, step): sentences for step, sentences in (*steps, *own) if sentences}
        print(f"{name}: {len(steps)} steps by AdCP's runner, {len(own)} of ours")
    known = {
        (each.storyboard, each.step): each.said
        for each in DIFFERENCES
        if not arguments or each.storyboard.replace("_", "-") in arguments
    }
    wrong = False
    for place in sorted(found.keys() | known.keys()):
        if found.get(place) != known.get(place):
            wrong = True
            print(f"  {' / '.join(place)}: {found.get(place, 'passed')}, not {known.get(place, 'passed')}")
    print(f"{graded} passed, {len(found)} differ{'' if wrong else ', as differences.py explains'}")
    return int(wrong or not graded)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
