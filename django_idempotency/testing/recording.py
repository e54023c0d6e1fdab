"""A store that records which verbs were called, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..stores.base import BaseStore
from ..stores.wrapper import WrappedStore


def recorded(verb: str) -> Any:
    """Return a method that records a verb, and passes its call on."""

    def call(self: RecordingStore, *given: Any, **named: Any) -> Any:
        self.verbs.append(verb)
        return getattr(super(RecordingStore, self), verb)(*given, **named)

    return call


class RecordingStore(WrappedStore):
    """Passes every verb on to another store and records its name in `verbs`."""

    def __init__(self, store: BaseStore) -> None:
        super().__init__(store)
        self.verbs: list[str] = []

    if not TYPE_CHECKING:  # they have the types of those that they override
        claim, settle, renew, get = map(recorded, ("claim", "settle", "renew", "get"))
        purge, guard, commit = map(recorded, ("purge", "guard", "commit"))
