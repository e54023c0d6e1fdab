"""A function's name identifies one function, or the project gives it one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_idempotency import idempotent_function

pytestmark = pytest.mark.usefixtures("memory")


def times(factor: int) -> Callable[[int], int]:
    """A factory: its functions have the same name for every factor."""

    def multiply(amount: int) -> int:
        return factor * amount

    return multiply


def unnamed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator without `functools.wraps`: every function under it is called `wrapper`."""

    def wrapper(order: int) -> Any:
        return function(order)

    return wrapper


class Till:
    def __init__(self, number: int) -> None:
        self.number = number

    def close(self, amount: int) -> int:
        return self.number * amount

    @classmethod
    def open(cls, amount: int) -> int:
        return amount


class OtherTill(Till):
    pass


def charge(order: int) -> int:
    return order


def program(module: str | None) -> Any:
    names: dict[str, Any] = {"__name__": module}
    exec("def charge(order): return order", names)
    return names["charge"]


#: Names that many functions may have, and the error for each.
SHARED = {
    "a lambda": (lambda order: order, "A lambda has no name"),
    "a closure": (times(2), "new function on each call"),
    "a wrapper without wraps": (unnamed(charge), "new function on each call"),
    "a bound method": (Till(2).close, "bound to one object"),
    "a class method of one of many": (OtherTill.open, "bound to one object"),
    "a function of a program": (program("__main__"), "A program has no name"),
    "a function of a spawned one": (program("__mp_main__"), "A program has no name"),
    "a function of no module": (program(None), "has no module"),
}


@pytest.mark.parametrize(("function", "says"), SHARED.values(), ids=SHARED)
def test_a_name_that_many_may_have(function: Any, says: str) -> None:
    """Such a function could return the result of another one. With its own name it is guarded."""
    with pytest.raises(ImproperlyConfigured, match=rf'{says}.*type key_prefix="…"'):
        idempotent_function(function)
    named = idempotent_function(key_prefix="this one")(function)
    assert named.idempotency.name == "this one"
    assert named(1) == named(1) == function(1)


def test_the_functions_of_a_factory() -> None:
    """Each function of a factory has its own results, by the name that the factory gives it."""

    def made(factor: int) -> Any:
        return idempotent_function(key_prefix=f"times {factor}")(times(factor))

    assert [made(2)(10), made(3)(10), made(2)(10)] == [20, 30, 20]


NAMED = {
    "a function": charge,
    "a method": Till.close,
    "a function under wraps": functools.wraps(charge)(unnamed(charge)),
    "a function of C": len,
}


@pytest.mark.parametrize("function", NAMED.values(), ids=NAMED)
def test_a_name_of_its_own(function: Any) -> None:
    """A unique function is named by its module and qualified name."""
    assert idempotent_function(function).idempotency.name == f"{function.__module__}.{function.__qualname__}"
