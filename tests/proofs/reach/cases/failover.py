"""A primary is killed while workers claim and settle: what is lost, and for how long its keys have
no store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pytest_django import Settings
from redis import Redis

from django_idempotency.stores.redis import RedisStore

from ....support.redis_groups import Group, cluster_group, sentinel_group, until
from ..load import Figures, Load
from .groups import caches

GROUPS: dict[str, Callable[[Path], AbstractContextManager[Group]]] = {
    "cluster": cluster_group,
    "sentinel": sentinel_group,
}
#: Seconds.
WARM, AFTER = 2.0, 3.0


def cpu(ports: list[int]) -> float:
    """Return the CPU seconds that servers have used."""
    used = 0.0
    for port in ports:
        with Redis(port=port) as client:
            about = client.info("cpu")
            used += about["used_cpu_sys"] + about["used_cpu_user"]
    return used


def failover(
    kind: str, folder: Path, settings: Settings, *, unreplicated: float, min_replicas: int = 0
) -> Figures:
    with GROUPS[kind](folder) as group:
        settings.CACHES = caches(group)
        store = RedisStore(cache="records", min_replicas=min_replicas)
        ports = [server.port for server in (group.others if group.clustered else [group.primary])]
        load = Load(store)
        time.sleep(0.5)
        used, served, begun = cpu(ports), load.stored, time.monotonic()
        time.sleep(WARM)
        used, served, passed = cpu(ports) - used, load.stored - served, time.monotonic() - begun
        group.kill_primary(unreplicated=unreplicated)
        until(group.promoted, "No replica takes over")
        group.primary.start()  # as a replica
        back = load.stored
        until(lambda: load.stored > back + 200, "The keys stay refused")
        time.sleep(AFTER)
        figures = load.end()
        store.close()
    show(
        f"{kind}, min_replicas={min_replicas}, {unreplicated:g} s unreplicated: {figures}; before: "
        f"{served / passed:.0f} keys a second, {used / served * 1e6:.0f} µs of the "
        "servers' CPU each"
    )
    return figures


def show(line: str) -> None:
    with Path(os.environ["REACH_FIGURES"]).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


@pytest.mark.parametrize("unreplicated", [0, 0.5])
def test_sentinel_with_one_replica_that_is_waited_for(
    tmp_path: Path, settings: Settings, unreplicated: float
) -> None:
    """With `min_replicas` and no other replica to promote, no work runs twice."""
    figures = failover("sentinel", tmp_path, settings, unreplicated=unreplicated, min_replicas=1)
    assert (figures.twice_after_response, figures.twice_before) == (0, 0)


@pytest.mark.parametrize("kind", GROUPS)
def test_what_no_replica_has_is_lost(tmp_path: Path, settings: Settings, kind: str) -> None:
    """Without it, what the primary wrote alone is forgotten: the figures above would show it."""
    figures = failover(kind, tmp_path, settings, unreplicated=0.5)
    assert figures.twice_after_response > 0


@pytest.mark.parametrize("kind", GROUPS)
def test_a_replica_takes_over(tmp_path: Path, settings: Settings, kind: str) -> None:
    """The keys of a primary that is killed have a store again, and nearly all of what was stored is
    there.
    """
    figures = failover(kind, tmp_path, settings, unreplicated=0)
    assert figures.twice_after_response < figures.requests / 100
