"""Checks of the stores that a layered one consists of, by the aliases in its OPTIONS. Nothing here connects.

`nested` has, for each alias of STORES, the aliases that its OPTIONS name, by option. `built` returns the store of an alias;
`None`: it cannot be built, and another check reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.core.checks import CheckMessage

from ..base import BaseStore, innermost, records_of
from ..check_messages import Finding, closest, shown
from .caches import RecordCache

Nested = Mapping[str, Mapping[str, str]]
Built = Callable[[str], BaseStore | None]


class E041(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] has %(value)s as its "%(name)s", which is not possible: %(problem)s.

    Type "%(name)s": "%(close)s"%(added)s.
    """


class E042(Finding):
    """IDEMPOTENCY["STORES"]: "%(alias)s" and "%(other)s" keep different records behind one front, %(front)s, so copies
    of one's records would be replayed for the other.

    Type "front": "front-%(other)s" in "%(other)s", and add "front-%(other)s": {"BACKEND":
    "django_idempotency.stores.redis.RedisStore", "OPTIONS": {"cache": "%(cache)s", "prefix":
    "idempotency-%(other)s"}} to "STORES".
    """


def check_parts(alias: str, nested: Nested, built: Built) -> Iterator[CheckMessage]:
    """Find the aliases that a layered store cannot consist of."""
    for name, value in nested[alias].items():
        if (problem := _problem(alias, name, value, nested, built)) is not None:
            taken = {other for option, other in nested[alias].items() if option != name}
            usable = [
                other
                for other in nested
                if other not in taken
                and _is_sound(built(other))
                and _problem(alias, name, other, nested, built) is None
            ]
            facts = {"close": closest(value, usable), "added": ""} if usable else _addition(name)
            yield E041(alias=alias, name=name, value=shown(value), problem=problem, **facts)


def check_front(alias: str, nested: Nested, built: Built) -> Iterator[CheckMessage]:
    """Find a later store that keeps other records behind the same front: a copy does not name its store."""
    aliases, front = list(nested), nested[alias].get("front", "")
    ours = _places(alias, nested, built)
    for other in aliases[aliases.index(alias) + 1 :]:
        theirs = _places(other, nested, built)
        if ours is not None and theirs is not None and ours[0] == theirs[0] and ours[1] != theirs[1]:
            cache = getattr(built(front), "cache", "default")
            yield E042(alias=alias, other=other, front=shown(front), cache=cache)


def _places(alias: str, nested: Nested, built: Built) -> tuple[Any, Any] | None:
    """Return where a store keeps its copies, and where its records; `None`: it has no front, or that is unknown."""
    front, store = built(nested[alias].get("front", "")), built(alias)
    return None if front is None or store is None else (records_of(front), records_of(store))


def _is_sound(store: BaseStore | None) -> bool:
    """Is a store worth suggesting?"""
    return store is not None and not [*innermost(store).check("")]


def _addition(name: str) -> dict[str, str]:
    kind, option = ("redis.RedisStore", "cache") if name == "front" else ("orm.ORMStore", "using")
    entry = f'{{"BACKEND": "django_idempotency.stores.{kind}", "OPTIONS": {{"{option}": "default"}}}}'
    close = "redis" if name == "front" else "records"
    return {"close": close, "added": f', and add "{close}": {entry} to "STORES"'}


def _problem(alias: str, name: str, value: str, nested: Nested, built: Built) -> str | None:
    """Return why an alias cannot be used there, or `None`. Another check reports one that cannot be built."""
    if value not in nested:
        return '"STORES" has no such alias'
    if alias in _reached(value, nested):
        return f'"{alias}" would contain itself'
    store = built(value)
    if name == "front" and store is not None and not isinstance(store, RecordCache):
        return f"{type(store).__name__} keeps no copies: it has no peek(), put() or drop()"
    return None


def _reached(alias: str, nested: Nested) -> set[str]:
    """Return the aliases that a store consists of, including its own."""
    pending, reached = [alias], set[str]()
    while pending:
        if (name := pending.pop()) not in reached:
            reached.add(name)
            pending += nested.get(name, {}).values()
    return reached
