"""What a release changes about a guarded function, and what then becomes of messages that the one
before it has met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_idempotency import idempotent_function
from django_idempotency.contrib.batches.messages import DeadLetter, disposition
from django_idempotency.errors import InProgress, RequestMismatch
from django_idempotency.functions import current_operation
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores

from .helpers import LEASES, Clock, NetworkDown

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["atomic", "lease", "memory"], autouse=True)
def guarantee(request: pytest.FixtureRequest) -> Any:
    settings = LEASES if request.param == "memory" else {"GUARANTEE": request.param}
    with override_settings(IDEMPOTENCY=settings):
        yield request.param


@dataclass
class World:
    """What is outside: which attempts there were, and the keys that a provider has seen."""

    fails: bool = False
    attempts: list[int] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    def work(self) -> int:
        current = current_operation()
        assert current is not None
        self.attempts.append(current.attempt)
        self.keys.add(current.derive("charge"))
        if self.fails:
            raise NetworkDown
        return len(self.attempts)


def of(
    world: World, *arguments: str, name: str = "charge", module: str = "shop.tasks", **terms: Any
) -> Callable[..., Any]:
    """Return a function of a release: its arguments as written, `name` and `module` as it is
    found.
    """
    names: dict[str, Any] = {"__name__": module, "work": world.work}
    exec(f"def {name}({', '.join(arguments)}): return work()", names)
    guarded: Callable[..., Any] = idempotent_function(**terms)(names[name])
    return guarded


MESSAGE = {"order": "o-17", "amount": 100, "currency": "eur"}
ARGUMENTS = ("order", "amount", "currency")


def select(arguments: Any) -> Any:
    return arguments["amount"]


def select_otherwise(arguments: Any) -> Any:
    return [arguments["amount"], arguments["currency"]]


#: `validate` before and after.
CHANGES = {
    "added": (None, "amount"),
    "removed": ("amount", None),
    "respelled": ("amount", "[amount]"),
    "more of it": ("amount", "[amount, currency]"),
    "a function": ("amount", select_otherwise),
    "another function": (select, select_otherwise),
}
changes = pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)


@changes
def test_a_message_that_had_failed_runs_again(
    before: Any, after: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the same operation, with the same derived key: the release has changed nothing about
    the message.
    """
    world = World(fails=True)
    with pytest.raises(NetworkDown):
        of(world, *ARGUMENTS, key="order", validate=before)(**MESSAGE)
    world.fails = False
    new = of(world, *ARGUMENTS, key="order", validate=after)
    assert new(**MESSAGE) == 2
    assert world.attempts == [1, 2]
    assert len(world.keys) == 1
    assert "known from a release with another validate=…" in caplog.text
    assert new(**MESSAGE) == 2  # and is remembered
    # Also if the release is taken back.
    assert of(world, *ARGUMENTS, key="order", validate=before)(**MESSAGE) == 2


@changes
def test_a_message_that_was_done_is_replayed(before: Any, after: Any) -> None:
    world = World()
    assert of(world, *ARGUMENTS, key="order", validate=before)(**MESSAGE) == 1
    assert of(world, *ARGUMENTS, key="order", validate=after)(**MESSAGE) == 1
    assert world.attempts == [1]


@changes
def test_a_message_that_runs_is_busy(before: Any, after: Any) -> None:
    """Workers of both releases are at work during a deployment."""
    world = World()
    met: list[Exception] = []

    def deployed() -> int:
        try:
            of(World(), *ARGUMENTS, key="order", validate=after)(**MESSAGE)
        except Exception as error:  # noqa: BLE001 - looked at below
            met.append(error)
        return 1

    world.work = deployed  # type: ignore[method-assign]
    of(world, *ARGUMENTS, key="order", validate=before)(**MESSAGE)
    assert [type(error) for error in met] == [InProgress]


@pytest.mark.parametrize("guarantee", ["lease", "memory"], indirect=True)
@changes
def test_an_async_message_that_had_failed_runs_again(before: Any, after: Any) -> None:
    world = World(fails=True)

    def afunction(validate: Any) -> Callable[..., Any]:
        async def charge(order: str, amount: int, currency: str) -> int:
            return world.work()

        return async_to_sync(
            idempotent_function(key="order", key_prefix="charge", validate=validate)(charge)
        )

    with pytest.raises(NetworkDown):
        afunction(before)(**MESSAGE)
    world.fails = False
    assert afunction(after)(**MESSAGE) == afunction(after)(**MESSAGE) == 2
    assert (world.attempts, len(world.keys)) == ([1, 2], 1)


@pytest.mark.parametrize("guarantee", ["memory"], indirect=True)
@changes
def test_an_abandoned_message_is_taken_over(before: Any, after: Any) -> None:
    """Its worker died before the release, and its lease has ended since."""
    store: Any = stores["default"]
    store._clock = clock = Clock()
    world = World()
    old = of(world, *ARGUMENTS, key="order", validate=before)
    work = world.work

    def die() -> int:
        work()
        raise KeyboardInterrupt

    world.work = die  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        of(world, *ARGUMENTS, key="order", validate=before)(**MESSAGE)
    world.work = work  # type: ignore[method-assign]
    new = of(world, *ARGUMENTS, key="order", validate=after)
    with pytest.raises(InProgress):
        new(**MESSAGE)
    clock.go(60)
    assert new(**MESSAGE) == 2
    assert (world.attempts, len(world.keys)) == ([1, 2], 1)
    assert old(**MESSAGE) == 2


@pytest.mark.parametrize("validate", ["amount", "[amount, currency]", select])
@pytest.mark.parametrize("fails", [True, False])
def test_the_same_expression_still_compares(validate: Any, fails: bool) -> None:
    """A release that changes something else, even the spaces of an expression, compares as
    before.
    """
    world = World(fails=fails)
    try:
        of(world, *ARGUMENTS, key="order", validate=validate)(**MESSAGE)
    except NetworkDown:
        world.fails = False
    respaced = validate.replace(" ", "  ") if isinstance(validate, str) else validate
    new = of(world, *ARGUMENTS, "note=''", key="order", validate=respaced)
    with pytest.raises(RequestMismatch) as refused:
        new(**{**MESSAGE, "amount": 101})
    assert isinstance(disposition(refused.value), DeadLetter)
    assert new(**MESSAGE) == len(world.attempts)


def test_what_another_expression_has_made_is_compared_with_it_again() -> None:
    """The record keeps its digest, and the name of what made it: taken back, the old expression
    compares.
    """
    world = World(fails=True)
    old = of(world, *ARGUMENTS, key="order", validate="amount")
    with pytest.raises(NetworkDown):
        old(**MESSAGE)
    world.fails = False
    of(world, *ARGUMENTS, key="order", validate="[amount, currency]")(**MESSAGE)
    with pytest.raises(RequestMismatch):
        old(**{**MESSAGE, "amount": 101})


@pytest.mark.parametrize("guarantee", ["atomic", "lease"], indirect=True)
def test_what_an_earlier_version_of_this_package_made_is_compared_as_before() -> None:
    """Its records do not say by which expression. Only one that had none is known for it."""
    world = World(fails=True)
    for order, validate in (("with", "amount"), ("without", None)):
        with pytest.raises(NetworkDown):
            of(world, *ARGUMENTS, key="order", validate=validate)(**{**MESSAGE, "order": order})
    IdempotencyRecord.objects.update(request_id="")
    world.fails = False
    new = of(world, *ARGUMENTS, key="order", validate="[amount]")
    with pytest.raises(RequestMismatch):
        new(**{**MESSAGE, "order": "with"})
    assert new(**{**MESSAGE, "order": "without"}) == 3
    same = of(world, *ARGUMENTS, key="order", validate="amount")
    assert same(**{**MESSAGE, "order": "with"}) == 4
    assert of(world, *ARGUMENTS, key="order")(**{**MESSAGE, "order": "with"}) == 4


#: What else a release may change, and whether the old message is still known. Each begins as
#: `charge(order, amount, currency)` of `shop.tasks`.
KEYED = {"key": "order"}
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], bool]] = {
    # name: terms before, after, the message after, known
    "key respelled": (KEYED, {"key": "[order]"}, MESSAGE, False),
    "key of more": (KEYED, {"key": "[order, amount]"}, MESSAGE, False),
    "a new parameter": (KEYED, {**KEYED, "arguments": (*ARGUMENTS, "note=None")}, MESSAGE, True),
    "a new parameter, all are the key": (
        {},
        {"arguments": (*ARGUMENTS, "note=None")},
        MESSAGE,
        False,
    ),
    "a new parameter, the old ones named": (
        {},
        {
            "arguments": (*ARGUMENTS, "note=None"),
            "key": "{order: order, amount: amount, currency: currency}",
        },
        MESSAGE,
        True,
    ),
    "renamed": (
        KEYED,
        {**KEYED, "arguments": ("order", "cents", "currency")},
        {"order": "o-17", "cents": 100, "currency": "eur"},
        True,
    ),
    "renamed, all are the key": (
        {},
        {"arguments": ("order", "cents", "currency")},
        {"order": "o-17", "cents": 100, "currency": "eur"},
        False,
    ),
    "renamed, the key too": (
        {},
        {
            "arguments": ("order", "cents", "currency"),
            "key": "{order: order, amount: cents, currency: currency}",
        },
        {"order": "o-17", "cents": 100, "currency": "eur"},
        True,
    ),
    "key renamed": (
        KEYED,
        {"key": "ref", "arguments": ("ref", "amount", "currency")},
        {"ref": "o-17", "amount": 100, "currency": "eur"},
        True,
    ),
    "reordered": ({}, {"arguments": ("currency", "amount", "order")}, MESSAGE, True),
    "removed": (
        KEYED,
        {**KEYED, "arguments": ("order", "amount")},
        {"order": "o-17", "amount": 100},
        True,
    ),
    "removed, all are the key": (
        {},
        {"arguments": ("order", "amount")},
        {"order": "o-17", "amount": 100},
        False,
    ),
    "function renamed": (KEYED, {**KEYED, "name": "pay"}, MESSAGE, False),
    "function renamed, name kept": (
        KEYED,
        {**KEYED, "name": "pay", "key_prefix": "shop.tasks.charge"},
        MESSAGE,
        True,
    ),
    "module renamed": (KEYED, {**KEYED, "module": "shop.jobs"}, MESSAGE, False),
    "module renamed, name kept": (
        KEYED,
        {**KEYED, "module": "shop.jobs", "key_prefix": "shop.tasks.charge"},
        MESSAGE,
        True,
    ),
    "hash function": (KEYED, {**KEYED, "hash_function": "sha1"}, MESSAGE, False),
}


@pytest.mark.parametrize(("before", "after", "message", "known"), OTHERS.values(), ids=OTHERS)
def test_a_release(
    before: dict[str, Any], after: dict[str, Any], message: dict[str, Any], known: bool
) -> None:
    """Is a message that was done still known? The page says so for each change."""
    world = World()
    of(world, *ARGUMENTS, **before)(**MESSAGE)
    terms = dict(after)
    arguments = terms.pop("arguments", ARGUMENTS)
    of(world, *arguments, **terms)(**message)
    assert (len(world.attempts) == 1) is known


def test_an_argument_that_a_release_takes_away_from_an_expression() -> None:
    """It is said at import, not by dead letters."""
    for terms in ({"key": "order", "validate": "amount"}, {"key": "[order, amount]"}):
        with pytest.raises(
            ImproperlyConfigured, match="selects amount, but the arguments are order, total"
        ):
            of(World(), "order", "total", **terms)
