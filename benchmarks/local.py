"""What needs no server: records in the process, and replays that do not reach the table."""

from __future__ import annotations

from django.db import connection

from django_idempotency.stores.layered import LayeredStore
from django_idempotency.stores.layered.caches import LocalCache
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.stores.orm import ORMStore

from . import acts, counting, redis_store
from .measuring import Effort, interleaved
from .table import Row, Section


def memory(effort: Effort) -> Section:
    store = MemoryStore()
    cases = [acts.claim(store), acts.replay(store), acts.settle(store)]
    timings = interleaved(cases, effort)
    rows = [
        Row(
            name=case.name,
            values=[seconds * 1e6 for seconds in timings[case.name]],
            unit="µs",
            statements=0,
        )
        for case in cases
    ]
    return Section(
        title="There is nothing to compare it with, so these are times of this machine", rows=rows
    )


def fronts(effort: Effort) -> Section:
    """Compare replays from a layered store's front with the same replays from the table."""
    base = acts.replay(ORMStore(), "from the table")
    local = LayeredStore(front=LocalCache(), authority=ORMStore())
    cases = [acts.replay(local, "replay from the local cache")]
    with redis_store.opened() as redis:
        if redis.store is not None:
            cases.append(
                acts.replay(
                    LayeredStore(front=redis.store, authority=ORMStore()), "replay from Redis"
                )
            )
        sent = {case.name: counting.statements(case) for case in cases}
        timings = interleaved([base, *cases], effort)
    rows = [
        Row(
            name=case.name,
            values=timings.ratios(case.name, base.name),
            statements=sent[case.name],
            most_statements=0,
        )
        for case in cases
    ]
    title = f"Replays from a front; the claim of a known key in {connection.display_name} = 1"
    return Section(
        title=title if redis.store is not None else f"{title} (Redis: {redis.about})", rows=rows
    )
