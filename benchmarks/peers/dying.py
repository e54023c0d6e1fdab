"""A worker that dies after the view's write: `python -m benchmarks.peers.dying PACKAGE NAME
KEY`.
"""

from __future__ import annotations

import os
import sys


def main(package: str, name: str, key: str) -> None:
    from benchmarks.run import begin

    begin()
    from .accidents import DEAD, Stage, happening
    from .libraries import LIBRARIES, prepared

    (library,) = (each for each in LIBRARIES if (each.package, each.name) == (package, name))
    with prepared(), happening(lambda: os._exit(DEAD)):
        Stage().send(library, key)


if __name__ == "__main__":
    main(*sys.argv[1:])
