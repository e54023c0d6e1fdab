"""What the apps among the wings share: what is said of them in INSTALLED_APPS, and how their tables are purged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import Error
from django.utils.module_loading import import_string

from ..checks import TAG, named
from ..errors import LostRace
from ..runtime.wings import Extension, Purging
from ..stores.orm.database_errors import lost_race

#: The most rows that one statement deletes.
TOGETHER = 1000


class WingConfig(AppConfig):
    """An app of `contrib/`, optional: installed beside `django_idempotency`. Paths are relative to its own."""

    default_auto_field = "django.db.models.BigAutoField"
    #: The path of its system check, and that of the class of its extension; "": it has none.
    check = extends = ""

    def ready(self) -> None:
        if self.check:
            checks.register(named(f"{self.name}.{self.check}"), TAG)

    @cached_property
    def extension(self) -> Extension | None:
        """What it adds to the core: see `runtime.wings`. Its module may load models."""
        return import_string(f"{self.name}.{self.extends}")() if self.extends else None


def purging(kind: str, *due: Callable[[], Any]) -> Purging:
    """Return what deletes the rows of some querysets, each made anew for each statement, in their order."""

    def purge(*, limit: int) -> int:
        for rows in due:
            if found := list(rows().values_list("pk", flat=True)[: min(limit, TOGETHER)]):
                with raced():
                    rows().filter(pk__in=found).delete()  # is it still due? It may have begun anew meanwhile
                return len(found)
        return 0

    return Purging(kind=kind, purge=purge, due=lambda *, limit: sum(rows()[:limit].count() for rows in due))


@contextmanager
def raced() -> Iterator[None]:
    """Raise `LostRace` for a deadlock, or a lock that was not given."""
    try:
        yield
    except Error as error:
        if lost_race(error):
            raise LostRace from error
        raise
