"""Checks of the client half. Nothing here connects: functions are imported, not called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import iscoroutinefunction
from typing import Any

from django.core.checks import CheckMessage
from django.utils.module_loading import import_string

from ...api import Finding, setting
from ...checks.settings import after_settings
from ...stores.check_messages import one_line, shown, type_named
from .providers import problem_of


class E120(Finding):
    """IDEMPOTENCY["PROVIDERS"] cannot be used: %(problem)s.

    Type "PROVIDERS": {"stripe": {"LIFETIME": timedelta(hours=24), "CLIENT":
    "shop.providers.stripe_client"}}, with what your provider publishes.
    """


@after_settings
def check_client(**_: Any) -> Iterator[CheckMessage]:
    """Check PROVIDERS."""
    providers = setting("PROVIDERS")
    if not isinstance(providers, Mapping):
        yield E120(problem=f"it is a {type_named(providers)}, not a dict")
        return
    for alias, options in providers.items():
        problem = problem_of(alias, options) or _path("CLIENT", options) or _path("LOOKUP", options)
        if problem:
            yield E120(problem=f"{shown(alias)}: {problem}")


def _path(option: str, options: Mapping[str, Any]) -> str | None:
    path = options.get(option)
    if path is None:
        return None
    try:
        found = import_string(path)
    except Exception as error:  # noqa: BLE001 - importing runs the project's code
        return f'"{option}" {shown(path)} cannot be imported: {one_line(error)}'
    sync = callable(found) and not iscoroutinefunction(found)
    return None if sync else f'"{option}" {shown(path)} is not a function without "async"'
