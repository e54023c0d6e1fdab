"""A decision is written once, and driven by a thread or by a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from django_idempotency.engine.commands import Claim, Commands, Pause, Settle, adrive, drive
from django_idempotency.errors import StoreUnavailable
from django_idempotency.testing.tickets import make_ticket

from ..support.fakes import FakeStore, record_of

TICKET = make_ticket()
RECORD = record_of(TICKET)

Driver = Callable[[FakeStore, Commands[Any]], Any]


@pytest.fixture(params=["sync", "async"])
def driver(request: pytest.FixtureRequest) -> Driver:
    return (
        drive
        if request.param == "sync"
        else lambda store, commands: asyncio.run(adrive(store, commands))
    )


def test_results_and_errors_come_back(driver: Driver) -> None:
    """A command's result is sent into the decision, and its error is raised where the command was
    yielded.
    """

    def deciding() -> Commands[list[Any]]:
        seen = [(yield Claim(TICKET))]
        try:
            yield Claim(TICKET)
        except StoreUnavailable as error:
            seen.append(type(error))
        yield Pause(0.0)
        return seen

    store = FakeStore(claims=[RECORD, StoreUnavailable()])
    assert driver(store, deciding()) == [RECORD, StoreUnavailable]
    assert store.trace == ["claim", "claim"]


@pytest.mark.parametrize("error", [StoreUnavailable, ZeroDivisionError, SystemExit])
def test_what_it_does_not_handle(driver: Driver, error: type[BaseException]) -> None:
    """An error that the decision does not handle reaches the caller, after its `finally`."""
    ended = []

    def deciding() -> Commands[None]:
        try:
            yield Claim(TICKET)
        finally:
            ended.append(True)

    with pytest.raises(error):
        driver(FakeStore(claims=[error()]), deciding())
    assert ended == [True]


def test_a_decision_that_asks_nothing(driver: Driver) -> None:
    """A decision without commands returns without a trip to the store."""

    def deciding() -> Commands[int]:
        if TICKET.key == "":
            yield Settle(TICKET, None)  # type: ignore[arg-type]
        return 7

    assert driver(store := FakeStore(claims=[]), deciding()) == 7
    assert store.trace == []
