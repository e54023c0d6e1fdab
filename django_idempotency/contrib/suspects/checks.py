"""Check of SUSPECTS. Nothing here connects."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from django.core.checks import CheckMessage

from ... import conf
from ...checks.settings import after_settings, senseless
from ...stores.check_messages import type_named
from .searching import Unsearchable, search_of


@after_settings
def check_suspects(**_: Any) -> Iterator[CheckMessage]:
    """Check that each entry of SUSPECTS can be searched."""
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
