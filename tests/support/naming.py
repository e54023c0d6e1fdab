"""Names of parametrized tests: the same in every process."""

from __future__ import annotations

import re


def shown(value: object) -> str:
    """Return the ASCII repr of a value, without memory addresses and with sets in a fixed order."""
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}({', '.join(sorted(map(shown, value)))})"
    return re.sub(r" at 0x[0-9a-f]+", "", ascii(value))
