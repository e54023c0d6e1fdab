"""Counts the failed calls of fronts: while one is down, the store behind it answers, so no request
shows that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from ... import conf
from ...instrumentation.meters import Metric
from ...runtime.registry import stores
from ...stores.base import BaseStore, layers

FAILURES = Metric(
    "front.failures",
    "Failed calls of a front, in whose place the store behind it was asked.",
    ("store", "reason"),
    unit="{call}",
)


def watched(store: BaseStore) -> BaseStore:
    """Let each front of a store count its failures.

    A front that is down is called once in five seconds by each process.
    """
    for front in _fronts(store):
        front.failed = partial(_count, front)
    return store


def _fronts(store: BaseStore) -> Iterator[Any]:
    """Yield the fronts of a store, the outermost first: any layer's, since a layered store may be
    in another one.
    """
    found = (getattr(layer, "front", None) for layer in layers(store))
    return (front for front in found if front is not None)


def _count(front: Any, down: bool) -> None:
    FAILURES.record(store=_alias_of(front), reason="down" if down else "refused")


def _alias_of(front: Any) -> str:
    """Return the alias of the store that has this front; of several, one that has the least in
    front of it.
    """
    places = []
    for alias in conf.get("STORES"):
        with suppress(Exception):  # a store that cannot be built, which `check` reports
            places.append(([*_fronts(stores[alias])].index(front), alias))
    return min(places)[1] if places else ""
