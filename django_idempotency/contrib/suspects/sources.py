"""The entries of the setting SUSPECTS: which models the admin searches for suspects, and by which facts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.db import router

from .searching import Search, Unsearchable, default_key, default_timestamp

#: What an entry has to have, and what it may have.
REQUIRED = ("model", "same", "within")
OPTIONAL = ("timestamp", "key", "where", "using")


def search_of(entry: Any, *, since: datetime, until: datetime) -> Search:
    """Return the search of one entry. Raises `Unsearchable`, which says what is wrong with it."""
    if not isinstance(entry, Mapping) or any(name not in entry for name in REQUIRED):
        raise Unsearchable(f"each entry is a dict with {', '.join(REQUIRED)}")
    if unknown := sorted(set(entry) - {*REQUIRED, *OPTIONAL}):
        raise Unsearchable(f"{unknown[0]!r} is not known; an entry may also have {', '.join(OPTIONAL)}")
    try:
        model = apps.get_model(entry["model"])
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        raise Unsearchable(f"there is no model {entry['model']!r}; type it as in payments.Charge") from error
    same, within, where = entry["same"], entry["within"], entry.get("where", {})
    if not isinstance(same, (list, tuple)) or not same or not all(isinstance(name, str) for name in same):
        raise Unsearchable('"same" is a list of fields, such as ["card", "amount"]')
    if not isinstance(within, (int, float, timedelta)) or isinstance(within, bool):
        raise Unsearchable('"within" is seconds, or a timedelta')
    if not isinstance(where, Mapping):
        raise Unsearchable('"where" is a dict, such as {"status": "paid"}')
    return Search(
        model=model,
        same=tuple(same),
        timestamp=entry.get("timestamp") or default_timestamp(model),
        key=entry.get("key") or default_key(model),
        within=within if isinstance(within, timedelta) else timedelta(seconds=within),
        since=since,
        until=until,
        where=tuple((name, str(value)) for name, value in where.items()),
        using=entry.get("using") or router.db_for_read(model) or "default",
    )
