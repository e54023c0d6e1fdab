"""Checks of the client half. Nothing here connects: a client's function is imported, not called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.checks import CheckMessage
from django.utils.module_loading import import_string

from ... import conf
from ...checks.settings import after_settings
from ...stores.check_messages import Finding, one_line, shown, type_named
from .providers import problem_of


class E120(Finding):
    """IDEMPOTENCY["PROVIDERS"] cannot be used: %(problem)s.

    Type "PROVIDERS": {"stripe": {"LIFETIME": timedelta(hours=24), "CLIENT": "shop.providers.stripe_client"}}, with
    what your provider publishes.
    """


@after_settings
def check_client(**_: Any) -> Iterator[CheckMessage]:
    """Check PROVIDERS."""
    providers = conf.get("PROVIDERS")
    if not isinstance(providers, Mapping):
        yield E120(problem=f"it is a {type_named(providers)}, not a dict")
        return
    for alias, options in providers.items():
        problem = problem_of(alias, options) or _client(options.get("CLIENT"))
        if problem is not None:
            yield E120(problem=f"{shown(alias)}: {problem}")


def _client(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        found = import_string(path)
    except Exception as error:  # noqa: BLE001 - importing runs the project's code
        return f'"CLIENT" {shown(path)} cannot be imported: {one_line(error)}'
    return None if callable(found) else f'"CLIENT" {shown(path)} is not a function that returns a client'
