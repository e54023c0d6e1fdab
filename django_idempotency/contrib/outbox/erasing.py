"""Delete waiting messages of a key, so that they are never published."""

from __future__ import annotations

from django.db import connections, router, transaction

from .models import Message


def erase(key: str, *, dry: bool = False, using: str | None = None) -> tuple[int, int]:
    """Delete the waiting messages of a key. Return how many were, and how many a relay holds. `dry`: only count.

    Keys are compared exactly, also where the database's collation says that `a` equals `A`.
    """
    alias = router.db_for_write(Message) if using is None else using
    messages = Message.objects.using(alias)
    found = [pk for pk, stored in messages.filter(key=key).values_list("pk", "key") if stored == key and key]
    if dry or not found:
        return len(found), 0
    skips = connections[alias].features.has_select_for_update_skip_locked
    with transaction.atomic(using=alias):
        held = list(messages.filter(pk__in=found).select_for_update(skip_locked=skips).values_list("pk", flat=True))
        messages.filter(pk__in=held).delete()
    left = messages.filter(pk__in=set(found) - set(held)).count()  # published meanwhile: gone as well
    return len(found) - left, left
