"""Guarded functions: terms that a function cannot have are an error before it is called."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import Model

from django_idempotency import idempotent_function
from django_idempotency.checks.policies import check_functions
from django_idempotency.functions import terms

from .conftest import Configure, hints, said

OUTSIDE = "tests.checks.backends.OutsideStore"
STORES = {
    "default": {"BACKEND": "django_idempotency.stores.orm.ORMStore"},
    "outside": {"BACKEND": OUTSIDE},
}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the functions of this test only."""
    monkeypatch.setattr(terms, "_DECLARED", set())


def test_what_is_in_order(configure: Configure) -> None:
    """Sync and atomic, and async and lease, are silent."""
    configure(STORES=STORES)

    @idempotent_function(store="default", key_prefix="one")
    def one() -> None: ...

    @idempotent_function(guarantee="lease", store="outside", key_prefix="two")
    async def two() -> None: ...

    assert check_functions() == []
    assert len(terms.declared()) == 2


class Row(Model):
    class Meta:
        app_label = "tests"
        managed = False

    def __str__(self) -> str:
        return "row"

    @idempotent_function
    def capture(self, amount: int) -> int:
        return amount

    @idempotent_function(key="order")
    def pay(self, order: str, amount: int) -> int:
        return amount

    @staticmethod
    @idempotent_function
    def settle(amount: int) -> int:
        return amount

    class Till:
        @idempotent_function
        def close(self, amount: int) -> int:
            return amount


def test_a_row_outside_the_key(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """W066: calls with equal arguments on two rows would be one call."""
    known: list[Any] = [Row.capture, Row.pay, Row.settle, Row.Till.close]
    monkeypatch.setattr(terms, "_DECLARED", {function.idempotency._terms for function in known})
    configure()
    (found,) = check_functions()
    assert hints([found]).keys() == {"W066"}
    assert "tests.Row" in found.msg
    assert f"{__name__}.Row.capture" in found.msg


def test_async_by_default(configure: Configure) -> None:
    """The settings say "atomic", and the async function does not override it."""

    @idempotent_function(key_prefix="one")
    async def one() -> None: ...

    configure()
    assert 'it cannot be "atomic". Type guarantee="lease".' in said(check_functions())["E035"]
    configure(GUARANTEE="lease")
    assert check_functions() == []


def test_a_missing_store(configure: Configure) -> None:
    """A missing store is an error that names those that are there."""

    @idempotent_function(store="outsid", key_prefix="one")
    def one() -> None: ...

    configure(STORES=STORES)
    assert (
        "no 'outsid'. It has 'default', 'outside'. Type one of these, or add it."
        in said(check_functions())["E035"]
    )


def test_a_store_that_cannot_be_atomic(configure: Configure) -> None:
    """A store that joins no transaction cannot be atomic."""

    @idempotent_function(store="outside", key_prefix="one")
    def one() -> None: ...

    configure(STORES=STORES)
    assert set(hints(check_functions())) == {"E035"}


def test_what_contradicts_the_settings(configure: Configure) -> None:
    """A lease of its own as long as the retention of the settings contradicts them; their lease it
    bounds.
    """

    @idempotent_function(guarantee="lease", lease=60, key_prefix="one")
    def one() -> None: ...

    @idempotent_function(guarantee="lease", expires_after=20, key_prefix="two")
    def two() -> None: ...

    configure()
    assert check_functions() == []
    configure(TTL=60)
    assert set(hints(check_functions())) == {"E035"}


def test_settings_come_first(configure: Configure) -> None:
    """Broken settings are the only thing reported."""

    @idempotent_function(store="nowhere", key_prefix="one")
    def one() -> None: ...

    configure(TTL=-1)
    assert check_functions() == []


def test_a_name_that_two_have(configure: Configure) -> None:
    """Two functions with one name would return each other's results.

    A prefix of its own keeps each apart.
    """
    configure()

    def of(prefix: str) -> object:
        @idempotent_function(key_prefix=prefix)
        def charge() -> None: ...

        return charge

    made = [of("charge"), of("other")]
    assert check_functions() == []
    made.append(of("charge"))
    (found,) = check_functions()
    assert hints([found]).keys() == {"W064"}
    assert "2 guarded functions are named charge" in found.msg
