"""Checks of guarded functions: can the policy work, and is the name unique? Only imported modules are seen."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from django.core.checks import CheckMessage
from django.db.models import Model

from ..functions.terms import declared
from .catalogue import finding
from .policies import policy_errors
from .settings import check_settings


def check_functions(**_: Any) -> list[CheckMessage]:
    """Check every function under `@idempotent_function`, once the settings are in order."""
    if check_settings():
        return []
    found: dict[str, CheckMessage] = {}
    for terms in declared():
        coroutine = "E047" if terms.is_async else None
        for message in policy_errors(terms.name, terms.policy, coroutine=coroutine, has_profile=False):
            found.setdefault(f"{message.id} {message.msg}", message)
    names = Counter(terms.name for terms in declared())
    shared = (finding("W064", name=name, count=count) for name, count in names.items() if count > 1)
    return [*found.values(), *shared, *_rowless()]


def _rowless() -> Iterator[CheckMessage]:
    """Yield the model methods whose calls do not identify their row."""
    for terms in declared():
        if terms.key is None and (model := _model_of(inspect.unwrap(terms.function))) is not None:
            yield finding("W066", name=terms.name, model=model._meta.label)


def _model_of(function: Callable[..., Any]) -> type[Model] | None:
    """Return the model that a function is a method of, by qualified name; `None` without one, or without `self`."""
    if next(iter(inspect.signature(function).parameters), "") != "self":
        return None
    place: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split(".")[:-1]:
        place = getattr(place, name, None)
    return place if isinstance(place, type) and issubclass(place, Model) else None
