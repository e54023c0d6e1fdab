"""Figures of commands in the text format of Prometheus, for the textfile collector of its node
exporter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

#: What a line of the text format says of each gauge.
ABOUT = {
    "records": "Records by status.",
    "oldest_running_seconds": "Since the oldest running record was first claimed.",
    "longest_abandoned_seconds": "Since the lease of the longest abandoned record ended.",
    "purge_lag_seconds": "Since the oldest record that a purge would delete could be deleted.",
    "store_size_bytes": "Room that the records take on the server, indexes included.",
}


def of_store(
    alias: str, counts: Iterable[tuple[str, int]], figures: Mapping[str, float], size: int | None
) -> Iterator[str]:
    """Yield the figures of a store: its records by status, and the others by name."""
    store = {"store": alias}
    yield from gauge(
        "records",
        ABOUT["records"],
        [({**store, "status": status}, count) for status, count in counts],
    )
    for name, value in (figures if size is None else {**figures, "store_size_bytes": size}).items():
        yield from gauge(name, ABOUT[name], [(store, value)])


def gauge(
    name: str, about: str, values: Iterable[tuple[Mapping[str, str], float]]
) -> Iterator[str]:
    """Yield a gauge in the text format of Prometheus: its values, each with its labels."""
    full = f"django_idempotency_{name}"
    yield f"# HELP {full} {about}\n# TYPE {full} gauge\n"
    for labels, value in values:
        # JSON escapes a text as this format does.
        shown = ",".join(
            f"{label}={json.dumps(text, ensure_ascii=False)}" for label, text in labels.items()
        )
        yield f"{full}{{{shown}}} {value}\n"
