"""A run: a database of its own, the testproject under gunicorn, clients, and restarts."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from django_idempotency.testing.linearizability import Answer, Violation, violations

from .clients import Clients, random
from .workloads import Workload, prepare


class Restarts(Protocol):
    """The database: one server, or a pair."""

    def restart(self) -> None:
        """End it in the middle of whatever it does, and return once there is one again."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What happened, and what must not have happened."""

    counts: dict[str, int]
    #: In seconds: the slowest operation, and the slowest request.
    slowest: tuple[float, float]
    unfinished: list[str]
    #: Keys without exactly one effect, and how many they have.
    wrong: dict[str, int]
    violations: list[Violation]
    #: What else is wrong.
    broken: list[str]

    @property
    def holds(self) -> bool:
        wrong = self.unfinished or self.wrong or self.violations or self.broken
        return not wrong and self.counts["operations"] > 0

    def __str__(self) -> str:
        rows = {name: f"{number:,}" for name, number in self.counts.items()}
        rows |= dict(
            zip(
                ("slowest operation", "slowest request"),
                (f"{each:.1f} s" for each in self.slowest),
                strict=True,
            )
        )
        lines = [f"{name:<32}{shown:>12}" for name, shown in rows.items()]
        lines += [f"Not finished: {key}" for key in self.unfinished]
        lines += [f"{number} effects: {key}" for key, number in self.wrong.items()]
        lines += self.broken
        return "\n".join([*lines, *map(str, self.violations)])


def run(
    workloads: Mapping[str, Workload],
    server: Restarts,
    *,
    clients: int,
    seconds: float,
    pause: float,
) -> dict[str, Report]:
    """Restart the database about every `pause` seconds under that many clients.

    Needs Django, set up for the server.
    """
    from django.core.management import call_command
    from django.db import connection

    from ...faults.servers import gunicorn

    call_command("migrate", verbosity=0)
    prepare()
    connection.close()
    restarts = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        gunicorn(
            Path(folder), DJANGO_SETTINGS_MODULE=os.environ["DJANGO_SETTINGS_MODULE"]
        ) as fleet,
    ):
        crowds = {
            name: Clients(each, fleet.url, clients // len(workloads))
            for name, each in workloads.items()
        }
        try:
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                time.sleep(min(left, random.uniform(0.5, 1.5) * pause))
                server.restart()
                restarts += 1
        finally:
            for crowd in crowds.values():
                crowd.end()
    for name, each in workloads.items():
        if finished := each.finish():
            print(f"{name}: {finished} are finished", flush=True)
    return {name: report(workloads[name], crowd, restarts) for name, crowd in crowds.items()}


def report(workload: Workload, crowd: Clients, restarts: int) -> Report:
    """Judge a run that has ended."""
    effects, gone = workload.effects(), workload.is_abandoned
    keys = set(crowd.begun) | set(effects)
    if workload.atomic:
        for key in keys:
            # The key of this turn.
            crowd.history.count(lambda key=key: effects.get(key, 0), key=key)  # type: ignore[misc]
    answers = Counter(call.answer for call in crowd.history)
    requests = len(crowd.history) - answers[Answer.COUNTED]
    counts = {
        "restarts": restarts,
        "operations": len(crowd.begun),
        "effects": sum(effects.values()),
        "requests": requests,
        "of them retries": requests - crowd.begun.total(),
        "first responses": answers[Answer.EXECUTED],
        "replays": answers[Answer.REPLAYED],
        "in progress (409)": answers[Answer.BUSY],
        "refused, nothing ran": answers[Answer.REFUSED],
        "outcome unknown": answers[Answer.UNKNOWN],
        **{
            f"status {status}" if status.isdigit() else status: crowd.statuses[status]
            for status in sorted(crowd.statuses)
        },
    }
    return Report(
        counts=counts,
        slowest=(crowd.slowest, crowd.slowest_request),
        unfinished=sorted(+crowd.unfinished),
        # What its clients have abandoned may never have begun.
        wrong={
            key: number
            for key in keys
            if (number := effects.get(key, 0)) != 1 and (number or not gone(key))
        },
        violations=violations(crowd.history),
        broken=list(workload.broken(keys)),
    )
