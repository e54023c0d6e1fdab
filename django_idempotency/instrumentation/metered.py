"""While there are meters: how long the verbs of a store take, and how often its fronts fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any
from uuid import UUID

from ..core.records import Record, Settlement, Ticket
from ..stores.base import BaseStore, Guard, layers
from ..stores.wrapper import WrappedStore
from .meters import Metric


class MeteredStore(WrappedStore):
    """Does what `store` does, and measures what a request waits for: the verbs that claim, lock,
    settle and renew.
    """

    def __init__(self, store: BaseStore, alias: str) -> None:
        super().__init__(store)
        self._alias = alias

    def claim(self, ticket: Ticket) -> Record:
        with measured(self._alias, "claim"):
            return self.store.claim(ticket)

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        with measured(self._alias, "settle"):
            return self.store.settle(ticket, settlement)

    def commit(self, guard: Guard, ticket: Ticket, settlement: Settlement) -> bool:
        with measured(self._alias, "commit"):
            return self.store.commit(guard, ticket, settlement)

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        with measured(self._alias, "renew"):
            return self.store.renew(tickets)

    def guard(
        self, ticket: Ticket, *, takeover: bool = False, claimed: Record | None = None
    ) -> AbstractContextManager[Guard]:
        return _MeteredGuard(
            self.store.guard(ticket, takeover=takeover, claimed=claimed), self._alias
        )


class _MeteredGuard(AbstractContextManager[Guard]):
    """Measures how long a guard takes to lock its record."""

    def __init__(self, guard: AbstractContextManager[Guard], alias: str) -> None:
        self._guard = guard
        self._alias = alias

    def __enter__(self) -> Guard:
        with measured(self._alias, "lock"):
            return self._guard.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return self._guard.__exit__(kind, error, traceback)


@contextmanager
def measured(alias: str, operation: str) -> Iterator[None]:
    """Measure a verb of the store `alias`, also one that raises."""
    began = time.perf_counter()
    try:
        yield
    finally:
        STORE_OPERATION.record(time.perf_counter() - began, store=alias, operation=operation)


#: Seconds. A verb of a store takes a tenth of a millisecond in memory, and seconds while a server
#: fails over.
QUICK = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
)
STORE_OPERATION = Metric(
    "store.operation.duration",
    "How long the verbs of a store took.",
    ("store", "operation"),
    unit="s",
    buckets=QUICK,
)
#: Alias → its store, measured.
_metered: dict[str, MeteredStore] = {}


def metered(alias: str, store: BaseStore) -> BaseStore:
    """Return a store that does the same and is measured under `alias`."""
    known = _metered.get(alias)
    if known is None or known.store is not store:
        known = _metered[alias] = MeteredStore(store, alias)
    return known


# ------------------------------------------------------------------------------------------ fronts

FAILURES = Metric(
    "front.failures",
    "Failed calls of a front, in whose place the store behind it was asked.",
    ("store", "reason"),
    unit="{call}",
)


def watch_fronts(store: BaseStore, alias_of: Callable[[Any], str]) -> None:
    """Let each front of a store count its failures, under the alias that `alias_of` returns for it.

    While a front is down, the store behind it answers, so no request shows that. A front that is
    down is called once in five seconds by each process.
    """
    for front in fronts_of(store):
        front.failed = partial(_count, front, alias_of)


def fronts_of(store: BaseStore) -> list[Any]:
    """Return the fronts of a store, the outermost first: any layer's, since a layered store may be
    in another one.
    """
    found = (getattr(layer, "front", None) for layer in layers(store))
    return [front for front in found if front is not None]


def _count(front: Any, alias_of: Callable[[Any], str], down: bool) -> None:
    FAILURES.record(store=alias_of(front), reason="down" if down else "refused")
