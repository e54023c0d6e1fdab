"""Can each guarded function have what it asks for, and a name of its own? Those of imported modules are known."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.core.checks import CheckMessage

from ..functions.terms import declared
from .catalogue import finding
from .policies import misfits
from .settings import check_settings


def check_functions(**_: Any) -> list[CheckMessage]:
    """Check every function under `@idempotent_function`, once the settings are in order."""
    if check_settings():
        return []
    found: dict[str, CheckMessage] = {}
    for terms in declared():
        for message in misfits(terms.name, terms.policy, coroutine="E047" if terms.is_async else None):
            found.setdefault(f"{message.id} {message.msg}", message)
    names = Counter(terms.name for terms in declared())
    shared = (finding("W064", name=name, count=count) for name, count in names.items() if count > 1)
    return [*found.values(), *shared]
