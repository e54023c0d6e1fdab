"""The payload of a call: the same however the call is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_idempotency.errors import UnhashablePayload
from django_idempotency.functions.arguments import Arguments, is_method


def plain(order: int, amount: int = 5, *, currency: str = "EUR") -> None: ...


def variadic(order: int, *rest: int, currency: str = "EUR", **more: int) -> None: ...


def positional(order: int, /, amount: int = 5) -> None: ...


class Shop:
    def sell(self, order: int, amount: int = 5) -> None: ...

    @staticmethod
    def look(order: int) -> None: ...

    @classmethod
    def make(cls, order: int) -> None: ...


FULL = {"order": 1, "amount": 5, "currency": "EUR"}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1,), {}),
        ((1, 5), {}),
        ((1,), {"amount": 5}),
        ((), {"order": 1}),
        ((), {"currency": "EUR", "amount": 5, "order": 1}),
    ],
)
def test_however_it_is_called(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Positional, keyword and default arguments are the same call."""
    assert Arguments(plain).payload(args, kwargs) == FULL


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "payload"),
    [
        (
            variadic,
            (1, 2, 3),
            {"tip": 4},
            {"order": 1, "rest": (2, 3), "currency": "EUR", "tip": 4},
        ),
        (variadic, (1,), {}, {"order": 1, "rest": (), "currency": "EUR"}),
        (positional, (1,), {"amount": 6}, {"order": 1, "amount": 6}),
        (Shop.sell, (1,), {}, {"order": 1, "amount": 5}),
        (Shop.look, (1,), {}, {"order": 1}),
        (Shop.make.__func__, (1,), {}, {"order": 1}),  # type: ignore[attr-defined]
        (lambda: None, (), {}, {}),
    ],
)
def test_every_kind_of_function(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    payload: dict[str, Any],
) -> None:
    """`self` and `cls` are not part of the payload; arguments collected by ** have their own
    names.
    """
    assert Arguments(function).payload(args, kwargs) == payload


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((1, 2, 3), {}),
        ((1,), {"order": 2}),
        ((1,), {"size": 2}),
        ((), {"amount": 1}),
        ((1, 5), {"amount": 6}),
    ],
)
@pytest.mark.parametrize("only", [None, "order"])
def test_a_wrong_call(args: tuple[Any, ...], kwargs: dict[str, Any], only: str | None) -> None:
    """A call that the function would reject is rejected in the same way, before anything is
    claimed.
    """
    with pytest.raises(TypeError):
        plain(*args, **kwargs)
    with pytest.raises(TypeError):
        Arguments(plain, only).payload(args, kwargs)


def test_two_arguments_of_one_name() -> None:
    """Python allows two arguments of one name; the key would be made of only one of them."""

    def odd(order: int, /, *rest: int, **more: int) -> None: ...

    for args, kwargs in ((1,), {"order": 2}), ((1, 2), {"rest": 3}):
        odd(*args, **kwargs)
        with pytest.raises(UnhashablePayload, match="two arguments named"):
            Arguments(odd).payload(args, kwargs)


def test_the_one_argument_that_counts() -> None:
    """The one argument is found by name, wherever it is in the call, and is passed on without a
    copy.
    """
    order: Any = {"id": 1}
    arguments = Arguments(plain, "order")
    assert arguments.payload((order,), {}) is order
    assert arguments.payload((), {"order": order}) is order
    assert Arguments(plain, "amount").payload((order,), {}) == 5
    assert Arguments(variadic, "tip").payload((1,), {"tip": 4}) == 4
    assert Arguments(variadic, "tip").payload((1,), {}) is None


def test_a_missing_argument() -> None:
    """A missing argument is found when the decorator runs, and the error lists the existing
    ones.
    """
    with pytest.raises(ImproperlyConfigured, match=r"'amout'.*order, amount, currency"):
        Arguments(plain, "amout")


def test_methods() -> None:
    """A function is a method by where it is defined, not only by the name of its argument."""

    def local(self: int) -> None: ...

    assert is_method(Shop.sell)
    assert not is_method(Shop.look)
    assert not is_method(local)
    assert not is_method(plain)
