"""A process that is stopped (SIGSTOP) at a step until its lease has ended, and goes on after
another one.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any
from uuid import uuid4

import pytest

from django_idempotency import idempotent_function
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.engine.borders import Border, watched_by
from django_idempotency.errors import InProgress
from django_idempotency.functions import current_operation
from tests.docs.pages import table

from ..support.provider import Provider
from . import test_steps
from .plans import PATIENCE, state, until
from .test_completing import ended, start
from .test_steps import SoldOut, cancel_order, find, make_order, provider, refund, written

__all__ = ["provider"]

pytestmark = [pytest.mark.faults, pytest.mark.sqlite, pytest.mark.django_db(transaction=True)]

#: Where this process stops, once; and whether the next attempt gives up.
STOPS: list[str] = []
GIVES_UP: list[bool] = []


def stop(where: str) -> None:
    if where in STOPS:
        STOPS.remove(where)
        os.kill(os.getpid(), signal.SIGSTOP)


def pay(card: str, *, idempotency_key: str) -> list[str]:
    stop("in the body, before its call")
    receipt = test_steps.PROVIDER.call("pay", card, idempotency_key)
    stop("in the body, after its call")
    return receipt


@idempotent_function(key="card", guarantee="lease", lease=1, extensions=[UndoOn(SoldOut)])
def pay_once(card: str) -> list[Any]:
    run = current_operation()
    assert run is not None
    order = run.step("order", make_order, card, undo=cancel_order)
    if GIVES_UP:
        raise SoldOut
    return [order, run.step("pay", pay, card, at="most_once", undo=refund, ask=find)]


def insist(card: str) -> None:
    """Call until the lease of the other has ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            pay_once(card)
        except InProgress:
            time.sleep(0.05)
        except SoldOut:
            return
        else:
            return
    raise TimeoutError


def promised() -> list[tuple[str, bool, str]]:
    """Return what the page says: where it is stopped, whether another gives up, and what then
    happens.
    """
    rows = table("how-to/steps.md", "## If the process is stopped")
    return [(row[0], bool(gives_up), row[1 + gives_up]) for row in rows for gives_up in (0, 1)]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize(("where", "gives_up", "promise"), promised())
def test_it_goes_on_late(provider: Provider, where: str, gives_up: bool, promise: str) -> None:
    """It calls as often as the page says, and what it wrote here is there once, or undone once."""
    card = uuid4().hex
    STOPS[:], GIVES_UP[:] = [where], []
    with watched_by(
        lambda name, border: (
            stop("before the body") if (name, border) == ("pay", Border.BEFORE) else None
        )
    ):
        child = start(pay_once, card)
    STOPS.clear()
    try:
        until(lambda: state(child).startswith("T"), "it is stopped")
        GIVES_UP[:] = [True] * gives_up
        insist(card)
    finally:
        os.kill(child, signal.SIGCONT)
        ended(child)
    calls = {"never": 0, "once": 1, "twice": 2}[
        promise.split(":", maxsplit=1)[0].split(",", maxsplit=1)[0]
    ]
    assert provider.notes(card)["pay"] == calls
    assert provider.effects(card)["pay"] == min(calls, 1)  # under one key
    assert provider.effects(card)["undo pay"] == ("it is undone" in promise)
    assert written(card) == ({"order": 1, "undo order": 1} if gives_up else {"order": 1})
