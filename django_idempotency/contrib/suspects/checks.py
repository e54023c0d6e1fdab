"""Check of SUSPECTS. Nothing here connects."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from django.core.checks import CheckMessage

from ... import conf
from ...checks.settings import check_settings, senseless
from ...stores.check_messages import type_named
from .searching import Unsearchable, search_of


def check_suspects(**_: Any) -> list[CheckMessage]:
    """Check that each entry of SUSPECTS can be searched."""
    return [] if check_settings() else list(_suspects())


def _suspects() -> Iterator[CheckMessage]:
    entries = conf.get("SUSPECTS")
    if not isinstance(entries, (list, tuple)):
        yield senseless("SUSPECTS", f"A list of dicts, not {type_named(entries)}")
        return
    now = datetime.now(timezone.utc)
    for entry in entries:
        try:
            search_of(entry, since=now, until=now)
        except Unsearchable as error:
            yield senseless("SUSPECTS", str(error).rstrip("."))
