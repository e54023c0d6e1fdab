"""A guarded function keeps its signature."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type

import jmespath.functions

from django_idempotency import idempotent_function
from django_idempotency.core.expressions import Functions


@idempotent_function
def bare(amount: int) -> str:
    return str(amount)


@idempotent_function(key="amount", expires_after=60)
def charge(amount: int, *, currency: str = "EUR") -> str:
    return f"{amount} {currency}"


@idempotent_function(key="amount", guarantee="lease")
async def acharge(amount: int) -> str:
    return str(amount)


class Ours(Functions): ...


class Theirs(jmespath.functions.Functions): ...


@idempotent_function(key="amount", jmespath_functions=Ours)
def by_class(amount: int) -> str:
    return str(amount)


@idempotent_function(key="amount", jmespath_functions=Theirs())
def by_instance(amount: int) -> str:
    return str(amount)


class Till:
    @idempotent_function(key="amount")
    def charge(self, amount: int) -> str:
        return str(amount)


def test_plain() -> None:
    assert_type(bare(1), str)
    assert_type(charge(1, currency="USD"), str)
    assert_type(charge.with_key("k")(1), str)
    charge("1")  # type: ignore[arg-type]
    charge(1, currenzy="EUR")  # type: ignore[call-arg]


async def test_async() -> None:
    coroutine: Coroutine[Any, Any, str] = acharge(1)
    assert_type(await coroutine, str)


def test_methods() -> None:
    assert_type(Till().charge(1), str)
