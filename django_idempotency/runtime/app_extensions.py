"""How optional apps add to the core.

An app config has an `Extension` as its `extension`, and the core knows none of those by name.
Without the app nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from django.apps import apps
from django.core.signals import setting_changed

if TYPE_CHECKING:
    from uuid import UUID

    from ..stores.base import BaseStore
    from .handle import OperationHandle

H = TypeVar("H")


@dataclass(frozen=True, kw_only=True)
class Purging:
    """Rows that `purge_idempotency` deletes after the records.

    `purge(limit=…)` deletes up to so many and returns how many; it raises `LostRace`, and the
    database's errors. `due(limit=…)` counts them, up to so many.
    """

    #: In the singular: "step".
    kind: str
    purge: Callable[..., int]
    due: Callable[..., int]


class AppExtension:
    """Adds to the core what an optional app has. Each method does nothing until it is overridden.

    What optional apps add to each other's commands is in `contrib.optional_app`.
    """

    #: Setting → what returns a store around another one while it is set. See
    #: `registry.PROTECTING`.
    protects: ClassVar[Mapping[str, Callable[[BaseStore], BaseStore]]] = {}

    def handle_mixin(self) -> type[OperationHandle] | None:
        """Return a class with what it adds to each work's handle, such as `request.idempotency`;
        `None`: it adds nothing.
        """
        return None

    def purging(self, alias: str, store: BaseStore) -> Iterable[Purging]:
        """Return which rows a purge of a store deletes besides its records."""
        return ()

    def erase_record(self, store: BaseStore, record: UUID, *, erased: bool) -> int:
        """Erase what is stored of a record elsewhere.

        Return how many things stay, since something is owed.

        `erased`: the record itself was erased, so no attempt needs them any more. Otherwise that is
        to follow.
        """
        return 0


def app_extensions() -> list[AppExtension]:
    """Return those of the installed apps, in the order of INSTALLED_APPS."""
    found = (getattr(config, "extension", None) for config in apps.get_app_configs())
    return [each for each in found if isinstance(each, AppExtension)]


@lru_cache(maxsize=64)
def extended(handle: type[H]) -> type[H]:
    """Return the class of a handle with all that the installed apps add to it."""
    mixins = [each.handle_mixin() for each in reversed(app_extensions())]
    bases = [each for each in mixins if each is not None]
    if not bases:
        return handle
    own = {"__doc__": handle.__doc__, "__module__": handle.__module__}
    return type(handle.__name__, (*bases, handle), own)


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "INSTALLED_APPS":
        extended.cache_clear()


setting_changed.connect(_forget)
