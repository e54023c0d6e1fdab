"""A function's name identifies one function, or the project gives it one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_idempotency import idempotent_function
from django_idempotency.errors import ConfigurationError

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
    assert (
        idempotent_function(function).idempotency.name
        == f"{function.__module__}.{function.__qualname__}"
    )


class Job:
    """A task as a class: what it does differs from class to class."""

    kind = "job"

    @idempotent_function(key="order")
    def run(self, order: int) -> str:
        return f"{self.kind} {order}"

    @classmethod
    @idempotent_function(key="order")
    def make(cls, order: int) -> str:
        return f"{cls.kind} {order}"

    @idempotent_function(key="order", key_prefix="any job")
    def shared(self, order: int) -> str:
        return f"{self.kind} {order}"

    @staticmethod
    @idempotent_function(key="order")
    def plain(order: int) -> int:
        return order


class Refund(Job):
    kind = "refund"


class Payout(Job):
    kind = "payout"

    def run(self, order: int) -> str:  # type: ignore[override]
        return super().run(order)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Refund().run(1),
        lambda: Payout().run(1),
        lambda: Refund.make(1),
        lambda: Job.run.with_key("1")(Refund(), 1),
    ],
    ids=["inherited", "by super", "class method", "with_key"],
)
def test_an_inherited_method_is_refused(call: Callable[[], Any]) -> None:
    """Two classes that inherit one guarded method would share its keys: the second would get the
    first one's result.
    """
    with pytest.raises(
        ConfigurationError, match=r'key_prefix="tests.functions.test_naming.Job.(run|make)"'
    ):
        call()


def test_a_method_of_its_own_class_keeps_its_name() -> None:
    """Its records stay known; so do those of a method that the project has named, and of one that
    does not know its class.
    """
    assert Job().run(1) == Job().run(1) == "job 1"
    assert Job.run.idempotency.name == f"{__name__}.Job.run"
    assert Job.run.idempotency.lookup(order=1) is not None
    assert Job.make(1) == "job 1"
    assert Refund().shared(1) == Payout().shared(1) == "refund 1"
    assert Refund.plain(2) == Job.plain(2) == 2


def task_of_celery(function: Callable[..., Any]) -> Any:
    return pytest.importorskip("celery").shared_task(function)


def task_of_an_app(function: Callable[..., Any]) -> Any:
    return pytest.importorskip("celery").Celery("shop", set_as_current=False).task(function)


def task_of_django(function: Callable[..., Any]) -> Any:
    return pytest.importorskip("django_tasks").task()(function)


def activity(function: Callable[..., Any]) -> Any:
    return pytest.importorskip("temporalio.activity").defn(function)


class Actor:
    """As Dramatiq, procrastinate and others make: an object with the function, and with its
    name.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def wrapped_task(function: Callable[..., Any]) -> Any:
    """A decorator between the two."""
    task = Actor(function)

    @functools.wraps(task)
    def timed(order: int) -> Any:
        return task(order)

    return timed


REGISTERING = [task_of_celery, task_of_an_app, task_of_django, activity, Actor, wrapped_task]


@pytest.mark.parametrize("decorator", REGISTERING)
def test_above_what_registers_the_function_it_is_refused(decorator: Callable[..., Any]) -> None:
    """A worker finds the function by its name, and would run it without a guard.

    The other order works.
    """
    with pytest.raises(ImproperlyConfigured, match="Swap the two lines"):
        idempotent_function(key="order")(decorator(program(f"above.{decorator.__name__}")))
    decorator(idempotent_function(key="order")(program(f"below.{decorator.__name__}")))


@pytest.mark.parametrize(
    "wrapped",
    [functools.lru_cache(charge), functools.singledispatch(charge)],
    ids=["cache", "dispatch"],
)
def test_what_only_wraps_a_function_is_guarded(wrapped: Any) -> None:
    assert idempotent_function(key_prefix="wrapped")(wrapped)(3) == 3


@pytest.mark.django_db(transaction=True)
def test_a_name_of_any_length_is_stored(settings: Any) -> None:
    """It was redelivered each second on databases, whose column has 255 characters."""
    settings.IDEMPOTENCY = {}
    named = idempotent_function(key="order", key_prefix="n" * 300)(charge)
    assert named(1) == 1
    known = named.idempotency.lookup(order=1)
    assert known is not None
    assert known.record.path == "n" * 255
