"""What optional apps share: how INSTALLED_APPS names them, and how their tables are purged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from django.apps import AppConfig, apps
from django.db import Error
from django.utils.module_loading import import_string

from ..api import AppExtension, Purging, Setting, lost_race
from ..errors import LostRace

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

    from ..api import BaseStore

#: The most rows that one statement deletes.
TOGETHER = 1000


class OptionalApp(AppConfig):
    """An app of `contrib/`, optional: installed beside `django_idempotency`. Paths are relative to
    its own.
    """

    default_auto_field = "django.db.models.BigAutoField"
    #: The path of the class of its extension; "": it has none.
    extends = ""

    # The core asks any app config for these, if they are there:
    #: Keys of `settings.IDEMPOTENCY`.
    idempotency_settings: ClassVar[Mapping[str, Setting]]
    #: The paths of its system checks → their tags beside the package's own.
    idempotency_checks: ClassVar[Mapping[str, tuple[str, ...]]]
    #: What else it adds to what a project types: names of commands, of methods of a work's handle,
    #: of settings of the core. Where the app is not installed, a message says by them which to add.
    adds: tuple[str, ...]
    #: A command of ours and what is added to it → the path of the class that does it.
    command_parts: ClassVar[Mapping[str, str]]
    #: The paths of checks that say who should install it, and are run where it is not; and of those
    #: that only `check --deploy` runs.
    advice: tuple[str, ...]
    deployed_advice: tuple[str, ...]

    @cached_property
    def extension(self) -> AppExtension | None:
        """What it adds to the core: see `runtime.app_extensions`. Its module may load models."""
        return import_string(f"{self.name}.{self.extends}")() if self.extends else None


@dataclass(frozen=True, kw_only=True)
class Erased:
    """What `idempotency_erase` has erased, or would erase, and what it has left since something
    holds it.
    """

    #: A plural: "outgoing calls".
    kind: str
    erased: int
    left: int = 0
    #: Why they were left: "have not ended".
    held_by: str = ""


class Housekeeping(AppExtension):
    """An extension that stores what belongs to a person, or is sealed: what `idempotency_erase` and
    `idempotency_stores reseal` ask.
    """

    def add_erase_arguments(self, parser: CommandParser) -> Iterable[str]:
        """Add options that name what to erase, each with the default `None`.

        Return their names among the options.
        """
        return ()

    def erase(
        self, options: Mapping[str, Any], *, scopes: frozenset[str], size: int, dry: bool
    ) -> Iterator[Erased]:
        """Erase what the options name, and rows of these scopes, in batches of `size`.

        `dry`: only count.
        """
        yield from ()

    def reseal(
        self, store: BaseStore, *, size: int, dry: bool
    ) -> Iterator[tuple[str, Counter[Any]]]:
        """Write sealed values as they would be written now.

        Yield, for each batch, their plural and what became of them.
        """
        yield from ()


def housekeeping() -> list[Housekeeping]:
    """Return those of the installed apps, in the order of INSTALLED_APPS."""
    found = (getattr(config, "extension", None) for config in apps.get_app_configs())
    return [each for each in found if isinstance(each, Housekeeping)]


def purging(kind: str, *due: Callable[[], Any]) -> Purging:
    """Return what deletes the rows of some querysets, each made anew for each statement, in their
    order.
    """

    def purge(*, limit: int) -> int:
        for rows in due:
            if found := list(rows().values_list("pk", flat=True)[: min(limit, TOGETHER)]):
                with raced():
                    # Is it still due? It may have begun anew meanwhile.
                    rows().filter(pk__in=found).delete()
                return len(found)
        return 0

    return Purging(
        kind=kind, purge=purge, due=lambda *, limit: sum(rows()[:limit].count() for rows in due)
    )


@contextmanager
def raced() -> Iterator[None]:
    """Raise `LostRace` for a deadlock, or a lock that was not given."""
    try:
        yield
    except Error as error:
        if lost_race(error):
            raise LostRace from error
        raise
