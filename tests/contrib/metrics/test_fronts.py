"""A front that fails is counted under the alias of its store, whatever is around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from pytest_django import Settings

pytest.importorskip("prometheus_client")

from prometheus_client import REGISTRY

from django_idempotency import idempotent_function
from django_idempotency.errors import StoreRefused
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.base import layers
from django_idempotency.stores.layered import LayeredStore

NOBODY = "redis://127.0.0.1:1"  # where nothing listens
LAYERED = "django_idempotency.stores.layered.LayeredStore"
MEMORY = {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}


def failures(store: str, reason: str = "down") -> float:
    labels = {"store": store, "reason": reason}
    return REGISTRY.get_sample_value("django_idempotency_front_failures_total", labels) or 0.0


@pytest.fixture(autouse=True)
def _site(settings: Settings) -> Iterator[None]:
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": NOBODY}}
    inner = {
        "BACKEND": LAYERED,
        "OPTIONS": {"front": "redis", "authority": "memory", "local_cache": True},
    }
    settings.IDEMPOTENCY = {
        "METRICS": "django_idempotency.contrib.metrics.prometheus.PrometheusMeter",
        "STORES": {
            "outer": {"BACKEND": LAYERED, "OPTIONS": {"front": "redis", "authority": "inner"}},
            "inner": inner,
            "memory": MEMORY,
            "broken": {"BACKEND": "nowhere.Store"},
            "redis": {"BACKEND": "django_idempotency.stores.redis.RedisStore"},
        },
    }
    yield
    stores["redis"].close()


def pay(order: str) -> str:
    return order


@pytest.mark.parametrize("alias", ["inner", "outer"])
def test_a_front_that_is_down(alias: str) -> None:
    """The call is done and its result is remembered; each front that failed is counted, once until
    it is tried again.
    """
    before = {name: failures(name) for name in ("inner", "outer", "broken")}
    guarded = idempotent_function(key="order", guarantee="lease", store=alias)(pay)
    assert [guarded(order="o-1") for _ in range(3)] == ["o-1"] * 3
    assert {name: failures(name) - count for name, count in before.items()} == {
        "inner": 1,
        "outer": 1 if alias == "outer" else 0,
        "broken": 0,
    }


def test_a_front_that_returns_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is up, and is asked each time."""

    def refuse(*_: Any) -> None:
        raise StoreRefused

    fronts = [layer.front for layer in layers(stores["inner"]) if isinstance(layer, LayeredStore)]
    monkeypatch.setattr(fronts[-1]._front, "peek", refuse)
    before = failures("inner"), failures("inner", "refused")
    assert [fronts[-1].peek(UUID(int=1)) for _ in range(2)] == [None, None]
    assert (failures("inner"), failures("inner", "refused")) == (before[0], before[1] + 2)


def test_without_metrics(settings: Settings) -> None:
    """Nothing is attached to a front."""
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "METRICS": None}
    assert [
        layer.front.failed for layer in layers(stores["outer"]) if isinstance(layer, LayeredStore)
    ] == [None] * 3


def test_a_count_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not reach the caller of the front."""
    (front, *_) = [
        layer.front for layer in layers(stores["outer"]) if isinstance(layer, LayeredStore)
    ]
    monkeypatch.setattr(front, "failed", lambda down: 1 / 0)
    assert front.peek(UUID(int=1)) is None
