"""Records that live in one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage

from .. import conf
from ..stores.wrapper import innermost
from .catalogue import finding
from .settings import check_settings
from .store_options import nested_in
from .stores import built


def check_memory(**_: Any) -> list[CheckMessage]:
    """Warn of memory stores outside DEBUG."""
    return [] if settings.DEBUG or check_settings() else list(_found())


def _found() -> Iterator[CheckMessage]:
    for alias in conf.get("STORES"):
        store = built(alias)
        # A nested store is reported under its own alias.
        if store is not None and innermost(store).in_process and not nested_in(alias):
            yield finding("W003", alias=alias)
