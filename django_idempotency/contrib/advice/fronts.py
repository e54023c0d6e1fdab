"""Checks that no two stores of different records share a front."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from django.core.checks import CheckMessage

from ... import conf
from ...checks.settings import after_settings
from ...checks.stores import built, nested_in
from ...runtime.registry import records_of
from ...stores.check_messages import Finding, shown


class E042(Finding):
    """IDEMPOTENCY["STORES"]: "%(alias)s" and "%(other)s" keep different records behind one front, %(front)s, so copies
    of one's records would be replayed for the other.

    Type "front": "front-%(other)s" in "%(other)s", and add "front-%(other)s": {"BACKEND":
    "django_idempotency.stores.redis.RedisStore", "OPTIONS": {"cache": "%(cache)s", "prefix":
    "idempotency-%(other)s"}} to "STORES".
    """


@after_settings
def check_fronts(**_: Any) -> Iterator[CheckMessage]:
    """Find two stores of different records behind one front: a copy does not name its store."""
    fronted = [
        (alias, name, store)
        for alias in conf.get("STORES")
        if (name := nested_in(alias).get("front")) is not None and (store := built(alias)) is not None
    ]
    for (alias, front, store), (other, shared, another) in combinations(fronted, 2):
        one, two = built(front), built(shared)
        if one is None or two is None or records_of(one) != records_of(two) or records_of(store) == records_of(another):
            continue
        yield E042(alias=alias, other=other, front=shown(front), cache=getattr(one, "cache", "default"))
