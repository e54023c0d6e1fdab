"""Delete waiting messages of a key, so that they are never published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.db import connections, router, transaction

from ..optional_app import Erased, Housekeeping
from .models import Message


class WaitingMessages(Housekeeping):
    """The table of messages. The relay deletes what it has published."""

    def add_erase_arguments(self, parser: Any) -> Iterable[str]:
        parser.add_argument(
            "--outbox-key", metavar="KEY", help="Delete the waiting messages with this key."
        )
        return ("outbox_key",)

    def erase(
        self, options: Mapping[str, Any], *, scopes: frozenset[str], size: int, dry: bool
    ) -> Iterator[Erased]:
        if options["outbox_key"] is not None:
            erased, left = erase(options["outbox_key"], dry=dry)
            yield Erased(kind="waiting messages", erased=erased, left=left, held_by="a relay holds")


def erase(key: str, *, dry: bool = False) -> tuple[int, int]:
    """Delete the waiting messages of a key.

    Return how many were, and how many a relay holds. `dry`: only count.

    Keys are compared exactly, also where the database's collation says that `a` equals `A`.
    """
    alias = router.db_for_write(Message)
    messages = Message.objects.using(alias)
    found = [
        pk
        for pk, stored in messages.filter(key=key).values_list("pk", "key")
        if stored == key and key
    ]
    if dry or not found:
        return len(found), 0
    skips = connections[alias].features.has_select_for_update_skip_locked
    with transaction.atomic(using=alias):
        held = list(
            messages.filter(pk__in=found)
            .select_for_update(skip_locked=skips)
            .values_list("pk", flat=True)
        )
        messages.filter(pk__in=held).delete()
    # Published meanwhile: gone as well.
    left = messages.filter(pk__in=set(found) - set(held)).count()
    return len(found) - left, left
