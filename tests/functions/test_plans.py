"""A function's plan is made once: a change of settings counts from its next call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

from django_idempotency import idempotent_function, realm
from django_idempotency.core.hashing import secret_id
from django_idempotency.core.records import Record
from django_idempotency.errors import KeyMissing, StoreUnavailable
from django_idempotency.functions.call import plan_of
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.overriding import override_idempotency
from tests.support.meters import RecordingMeter, installed

from .helpers import LEASES, MEMORY

pytestmark = pytest.mark.usefixtures("memory")


@pytest.fixture
def charge() -> Any:
    @idempotent_function(key="order", key_prefix="charge")
    def charge(order: int | None) -> int | None:
        return order

    return charge


def seen(charge: Any, order: int = 1) -> Record:
    charge(order)
    known = charge.idempotency.lookup(order)
    assert known is not None
    return known.record  # type: ignore[no-any-return]


def lifetime(record: Record) -> int:
    assert record.expires_at is not None
    return round((record.expires_at - record.created_at).total_seconds())


def test_it_is_made_once(charge: Any) -> None:
    """Calls under the same settings share it."""
    terms = charge.idempotency._terms
    charge(1)
    plan = plan_of(terms)
    charge(2)
    assert plan_of(terms) is plan


def test_overridden_settings(charge: Any) -> None:
    charge(1)
    with override_settings(IDEMPOTENCY={**LEASES, "TTL": 100}):
        assert lifetime(seen(charge, 2)) == 100
    assert lifetime(seen(charge, 3)) == 86400


def test_a_secret_key(charge: Any) -> None:
    charge(1)
    with override_settings(SECRET_KEY="another"):
        assert seen(charge, 2).secret_id == secret_id("another")


def test_a_store_in_a_test(charge: Any) -> None:
    charge(1)

    class Away(MemoryStore):
        def claim(self, ticket: Any) -> Any:
            raise StoreUnavailable

    with stores.replaced("default", Away()), pytest.raises(StoreUnavailable):
        charge(2)
    assert charge(2) == 2


def test_meters(charge: Any) -> None:
    """Those that are installed count, from the next call and to the last."""
    charge(1)
    with installed(meter := RecordingMeter()):
        charge(2)
        assert meter.outcomes == ["executed"]
    charge(3)
    assert meter.outcomes == []


def test_a_realm(charge: Any) -> None:
    """It is asked at each call, whether the plan was made inside of one or not."""
    with realm("a"):
        in_a = seen(charge).scope
    outside = seen(charge).scope
    with realm("b"):
        in_b = seen(charge).scope
    assert len({in_a, in_b, outside}) == 3


def test_counts_of_replays(charge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[bool] = []
    monkeypatch.setattr(
        "django_idempotency.instrumentation.repeats.repeats.add",
        lambda store, record, *, replayed: counted.append(replayed),
    )
    charge(1)
    charge(1)
    assert counted == []
    with override_settings(IDEMPOTENCY={**LEASES, "COUNT_REPLAYS": True}):
        charge(1)
        charge(1)
        charge(1)
    assert counted == [True, True]


@pytest.mark.parametrize(
    "broken", [{"STORE": "none"}, {"STORES": {"default": MEMORY}, "GUARANTEE": "atomic"}]
)
def test_what_needs_no_plan(charge: Callable[..., Any], broken: dict[str, Any]) -> None:
    """A call without a key, or while idempotency is off, runs whatever the settings say of
    stores.
    """
    with override_settings(IDEMPOTENCY={**LEASES, **broken}):
        assert charge(None) is None
        with override_idempotency(enabled=False):
            assert charge(1) == 1


def test_a_key_that_becomes_required(charge: Any) -> None:
    assert charge(None) is None
    with override_settings(IDEMPOTENCY={**LEASES, "REQUIRED": True}), pytest.raises(KeyMissing):
        charge(None)
