"""Every check: its code, its message, and what to type. `docs/reference/checks.md` is this table.

E: the configuration cannot work. W: it works, but may surprise. I: it is worth knowing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage

from ...stores.check_messages import PREFIX, closest, message, one_line, shown, type_named
from .databases import DATABASES
from .routes import MIDDLEWARE, ROUTES
from .servers import DEPLOYED
from .settings import SETTINGS
from .stores import STORES

__all__ = ["CATALOGUE", "PREFIX", "and_more", "closest", "finding", "one_line", "shown", "type_named"]

#: Code → (message, hint).
CATALOGUE: dict[str, tuple[str, str]] = {**SETTINGS, **STORES, **MIDDLEWARE, **ROUTES, **DATABASES, **DEPLOYED}


def finding(code: str, **facts: Any) -> CheckMessage:
    """Build the check message of a code."""
    return message(CATALOGUE, code, **facts)


def and_more(found: Sequence[str]) -> str:
    """Return what follows the first name in a message."""
    return f" and {len(found) - 1} more" if len(found) > 1 else ""
