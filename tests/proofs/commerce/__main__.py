"""Run the suites of protocols of agentic commerce against guarded views, over real HTTP.

    python -m tests.proofs.commerce [protocol ...] [arguments for them]

A protocol is a package beside this file, with `main(arguments)`, which returns an exit code.
Without a name all of them run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path

PROTOCOLS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/__init__.py"))


def main(arguments: Sequence[str]) -> int:
    chosen = list(takewhile(PROTOCOLS.__contains__, arguments))
    others = arguments[len(chosen) :]
    if others and not others[0].startswith("-"):
        print(f"Unknown: {others[0]}. There are: {', '.join(PROTOCOLS)}.", file=sys.stderr)
        return 2
    codes: list[int] = [
        import_module(f"{__package__}.{name}").main(others) for name in chosen or PROTOCOLS
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
