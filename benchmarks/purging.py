"""A purge in batches of 1,000, beside a thread that keeps claiming and settling."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from statistics import median, quantiles

from django.db import connection

from django_idempotency.stores.orm import ORMStore

from .filling import DAY, fill
from .measuring import Act, Effort, no_collection, timed
from .store import TABLE, once
from .table import Row, Section

BATCH = 1000
#: Seconds between two claims.
PAUSE = 0.001


def purge(effort: Effort) -> Section:
    rates, middles, tails, calm = [], [], [], []
    for _ in range(effort.rounds):
        fill(TABLE, effort.purged, age=3 * DAY)
        with Traffic() as alone:
            time.sleep(0.2)
        calm.append(alone.percentile(99))
        with no_collection(), Traffic() as traffic:
            rates.append(effort.purged / timed(delete_all))
        middles.append(traffic.percentile(50))
        tails.append(traffic.percentile(99))
    judged = connection.vendor == "postgresql"
    rows = [
        Row(
            name="rows deleted in a second",
            values=rates,
            unit="rows/s",
            bar=50_000 if judged else None,
            at_least=True,
        ),
        Row(name="claim and settle beside it, p50", values=middles, unit="ms"),
        Row(
            name="claim and settle beside it, p99",
            values=tails,
            unit="ms",
            bar=15 if judged else None,
        ),
        Row(name="claim and settle without it, p99", values=calm, unit="ms"),
    ]
    return Section(
        title=f"Purge of {effort.purged:,} rows in batches of {BATCH:,}, beside traffic", rows=rows
    )


def delete_all() -> None:
    store, since = ORMStore(), None
    while (since := batch(store, since)) is not None:
        pass


def batch(store: ORMStore, since: datetime | None) -> datetime | None:
    purged = store.purge(limit=BATCH, since=since)
    return purged.resume if purged.count == BATCH else None


class Traffic:
    """Repeats what `prepare` prepares, a claim and settle, in a thread and on a connection of its
    own, and times it.
    """

    def __init__(self, prepare: Callable[[], Act] | None = None) -> None:
        self._prepare = prepare or partial(once, ORMStore())
        self._times: list[float] = []
        self._failed: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Traffic:  # noqa: PYI034 - Self is recent
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            connection.ensure_connection()
            while not self._over.wait(PAUSE) or not self._times:
                self._times.append(timed(self._prepare()))
        except Exception as error:  # noqa: BLE001 - raised again where the thread is joined
            self._failed = error
        finally:
            connection.close()

    def percentile(self, percent: int) -> float:
        """Return a percentile in milliseconds."""
        if len(self._times) < 2:
            return self._times[0] * 1000
        cuts = quantiles(self._times, n=100, method="inclusive")
        return (median(self._times) if percent == 50 else cuts[percent - 1]) * 1000
