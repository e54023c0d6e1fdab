"""The check of stores with a `front`, by the aliases in their OPTIONS. Nothing here connects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.core.checks import CheckMessage

from ..base import BaseStore, records_of
from ..check_messages import Finding, shown

Nested = Mapping[str, Mapping[str, str]]
Built = Callable[[str], BaseStore | None]


class E042(Finding):
    """IDEMPOTENCY["STORES"]: "%(alias)s" and "%(other)s" keep different records behind one front,
    %(front)s, so copies of one's records would be replayed for the other.

    Type "front": "front-%(other)s" in "%(other)s", and add to "STORES" a copy of %(front)s as
    "front-%(other)s", with "prefix": "idempotency-%(other)s" in its "OPTIONS".
    """


def check_front(*, alias: str, nested: Nested, built: Built) -> Iterator[CheckMessage]:
    """Find a later store that keeps other records behind the same front: a copy does not name its
    store.

    `nested` has, for each alias of STORES, the aliases that its OPTIONS name, by option. `built`
    returns the store of an alias; `None`: it cannot be built, and another check reports it.
    """
    aliases = list(nested)
    front = nested[alias].get("front", "")
    ours = _places(alias, nested, built)
    for other in aliases[aliases.index(alias) + 1 :]:
        theirs = _places(other, nested, built)
        if (
            ours is not None
            and theirs is not None
            and ours[0] == theirs[0]
            and ours[1] != theirs[1]
        ):
            yield E042(alias=alias, other=other, front=shown(front))


def _places(alias: str, nested: Nested, built: Built) -> tuple[Any, Any] | None:
    """Return where a store keeps its copies, and where its records; `None`: it has no front, or
    that is unknown.
    """
    front = built(nested[alias].get("front", ""))
    store = built(alias)
    return None if front is None or store is None else (records_of(front), records_of(store))
