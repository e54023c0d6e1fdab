"""What a wing, an app of `contrib/`, adds to the commands of the core. The core asks these, and knows none of them by name.

A wing's app config has one as its `extension`. Without the app nothing is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from django.apps import apps
from django.core.signals import setting_changed

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

    from .core.records import Record
    from .runtime.handle import OperationHandle
    from .stores.base import BaseStore

H = TypeVar("H")


@dataclass(frozen=True, kw_only=True)
class Purging:
    """Rows that `purge_idempotency` deletes after the records.

    `purge(limit=…)` deletes up to so many and returns how many; it raises `LostRace`, and the database's errors.
    `due(limit=…)` counts them, up to so many.
    """

    #: In the singular: "step".
    kind: str
    purge: Callable[..., int]
    due: Callable[..., int]


@dataclass(frozen=True, kw_only=True)
class Erased:
    """What `idempotency_erase` has erased, or would erase, and what it has left since something holds it."""

    #: A plural: "outgoing calls".
    kind: str
    erased: int
    left: int = 0
    #: Why they were left: "have not ended".
    held_by: str = ""


class Extension:
    """What a wing adds. Each method does nothing until a wing overrides it."""

    def handle(self, handle: type[OperationHandle]) -> type[OperationHandle]:
        """Return the class of a work's handle, such as `request.idempotency`: the given one, or one with more methods."""
        return handle

    def purging(self, alias: str, store: BaseStore) -> Iterable[Purging]:
        """Return which rows a purge of a store deletes besides its records."""
        return ()

    def add_erase_arguments(self, parser: CommandParser) -> Iterable[str]:
        """Add options that name what to erase, each with the default `None`. Return their names among the options."""
        return ()

    def erase(self, options: Mapping[str, Any], *, scopes: frozenset[str], size: int, dry: bool) -> Iterator[Erased]:
        """Erase what the options name, and rows of these scopes, in batches of `size`. `dry`: only count."""
        yield from ()

    def erase_record(self, store: BaseStore, record: Record) -> None:
        """Erase what is stored of a record elsewhere, before it is erased itself."""

    def reseal(self, store: BaseStore, *, size: int, dry: bool) -> Iterator[tuple[str, Counter[Any]]]:
        """Write sealed values as they would be written now. Yield, for each batch, their plural and what became of them."""
        yield from ()


def extensions() -> list[Extension]:
    """Return those of the installed apps, in the order of INSTALLED_APPS."""
    found = (getattr(config, "extension", None) for config in apps.get_app_configs())
    return [each for each in found if isinstance(each, Extension)]


@lru_cache(maxsize=64)
def extended(handle: type[H]) -> type[H]:
    """Return the class of a handle with all that the installed apps add to it."""
    found: Any = handle
    for each in extensions():
        found = each.handle(found)
    return found  # type: ignore[no-any-return]


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "INSTALLED_APPS":
        extended.cache_clear()


setting_changed.connect(_forget)
