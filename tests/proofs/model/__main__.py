"""Search all histories: `python -m tests.proofs.model`.

Fails if a promise is broken, or if a mutation goes unnoticed.
"""

from __future__ import annotations

import sys

from .search import search
from .settings import EXAMINED, MUTATIONS


def main() -> int:
    failed = False
    for said, setting in EXAMINED.items():
        found = search(setting)
        failed |= bool(found.broken)
        sys.stdout.write(f"{said}: {found}\n")
    for said, setting in MUTATIONS.items():
        found = search(setting)
        failed |= not found.broken
        sys.stdout.write(f"\nIf {said}: {found}\n")
    return int(failed)


sys.exit(main())
