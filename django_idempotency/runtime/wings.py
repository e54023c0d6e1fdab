"""Wings: what folders of `contrib/` add. The core imports none of them at its top.

A wing that is an app has an `Extension` as its app config's `extension`, and the core knows none of
those by name. Without the app nothing is asked. A wing that an option asks for, of a policy, a
function, a setting or a command, is in `WINGS`: what asks for one gets it by `wing()`, which raises
without its folder. The plan of a view or a function gets what screens, decides and keeps before
anything is claimed, and `manage.py check` makes the plan; what only a replay needs, the replay
gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from django.apps import apps
from django.core.signals import setting_changed

from ..errors import ConfigurationError

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


class Extension:
    """What a wing adds to the core. Each method does nothing until a wing overrides it.

    What wings add to each other's commands is in `contrib.wing`.
    """

    def handle(self, handle: type[OperationHandle]) -> type[OperationHandle]:
        """Return the class of a work's handle, such as `request.idempotency`: the given one, or one
        with more methods.
        """
        return handle

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


# ------------------------------------------------- of an option of a policy, a setting or a command

#: What asks for a wing, in words, and the wing's module.
WINGS = {
    "monitoring": ("--format textfile", "django_idempotency.contrib.monitoring.textfile"),
}


def wing(name: str) -> Any:
    """Return the module of a wing. Raises `ConfigurationError` if it is not there."""
    option, module = WINGS[name]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(
            f"{option} needs {module}, which this package does not have."
        ) from error
