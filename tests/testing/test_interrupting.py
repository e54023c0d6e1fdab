"""interrupt_at() breaks off an attempt where it says, and nowhere else; the next attempt does the
rest.
"""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_idempotency import idempotent_function
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.models import Step
from django_idempotency.contrib.steps.rules import StepState
from django_idempotency.errors import OperationCancelled
from django_idempotency.testing import Interrupted, interrupt_at
from django_idempotency.testing.clock import elapse
from tests.contrib.steps import work
from tests.contrib.steps.test_resuming import operation
from tests.contrib.steps.work import PROVIDER, Declined

pytestmark = pytest.mark.django_db(transaction=True)

LEASE = 30


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    work.reset()


@idempotent_function(key="card", guarantee="lease", lease=LEASE, extensions=[UndoOn(Declined)])
def booking(card: str) -> Any:
    """Do one thing here, one elsewhere, and one as a block."""
    run = operation()
    order = run.step("order", work.make_order, card, undo=work.cancel_order)
    charged = run.step("charge", work.charge, order, undo=work.refund)
    with run.step("book") as step:
        if not step.done:
            step.result = PROVIDER.do("book", step.key)
    return [order, charged, step.result]


@idempotent_function(key="card", guarantee="lease", lease=LEASE)
async def acharging(card: str) -> Any:
    """Call elsewhere."""
    return await operation().astep("charge", work.acharge, 1, undo=work.arefund)


def seen() -> tuple[int, int, int, list[str]]:
    """Return what was written here, what was called for, and the states of all rows."""
    states = Step.objects.order_by("position").values_list("state", flat=True)
    return (
        len(work.labels()),
        PROVIDER.asked("charge"),
        PROVIDER.asked("book"),
        [StepState(each).name for each in states],
    )


#: Step, place → what was written here, calls for a charge and for a booking, and the rows.
PLACES = {
    ("order", "before"): (0, 0, 0, []),
    ("order", "during"): (0, 0, 0, []),  # rolled back
    ("order", "after"): (1, 0, 0, ["DONE"]),
    ("charge", "before"): (1, 0, 0, ["DONE", "STARTED"]),
    ("charge", "during"): (1, 1, 0, ["DONE", "STARTED"]),
    ("charge", "after"): (1, 1, 0, ["DONE", "DONE"]),
    ("book", "before"): (1, 1, 0, ["DONE", "DONE"]),
    ("book", "during"): (1, 1, 1, ["DONE", "DONE"]),
    ("book", "after"): (1, 1, 1, ["DONE", "DONE", "DONE"]),
}


@pytest.mark.parametrize(("step", "when"), PLACES)
def test_it_breaks_off_there(step: str, when: Any) -> None:
    """Each place leaves what it says, and after the lease the next attempt does the rest, once."""
    with (
        interrupt_at(step, when=when),
        pytest.raises(Interrupted, match=f"{when} the step '{step}'"),
    ):
        booking("visa")
    assert seen() == PLACES[step, when]
    elapse(LEASE + 1)
    assert len(booking("visa")) == 3
    assert len(work.labels()) == 1
    assert (PROVIDER.count("charge"), PROVIDER.count("book")) == (1, 1)
    repeated = 1 if when == "during" else 0  # with its key
    assert step == "order" or PROVIDER.asked(step) == 1 + repeated


#: Undo, place → what was written here, calls for a refund, and the rows.
UNDOS = {
    ("undo charge", "before"): (1, 0, ["DONE", "UNDOING", "BARRIER"]),
    ("undo charge", "during"): (1, 1, ["DONE", "UNDOING", "BARRIER"]),
    ("undo charge", "after"): (1, 1, ["DONE", "UNDONE", "BARRIER"]),
    ("undo order", "before"): (1, 1, ["DONE", "UNDONE", "BARRIER"]),
    ("undo order", "during"): (1, 1, ["DONE", "UNDONE", "BARRIER"]),  # rolled back
    ("undo order", "after"): (2, 1, ["UNDONE", "UNDONE", "BARRIER"]),
}


@pytest.mark.parametrize(("undo", "when"), UNDOS)
def test_undos_break_off_too(undo: str, when: Any) -> None:
    """The undo of a step has the same places, and the next attempt undoes the rest."""
    PROVIDER.fails["book"] = Declined()
    with interrupt_at(undo, when=when), pytest.raises(Interrupted):
        booking("visa")
    written, _, _, rows = seen()
    assert (written, PROVIDER.asked("refund"), rows) == UNDOS[undo, when]
    elapse(LEASE + 1)
    for _ in range(2):
        with pytest.raises(OperationCancelled):
            booking("visa")
    assert seen()[3] == ["UNDONE", "UNDONE", "BARRIER"]
    assert (len(work.labels()), PROVIDER.count("refund")) == (2, 1)


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_coroutine_breaks_off(when: Any) -> None:
    """The same in async code."""
    charging = async_to_sync(acharging)
    with interrupt_at("charge", when=when), pytest.raises(Interrupted):
        charging("visa")
    assert PROVIDER.asked("charge") == (when != "before")
    elapse(LEASE + 1)
    assert charging("visa") == next(iter(PROVIDER.effects.values()))
    assert PROVIDER.asked("charge") == (2 if when == "during" else 1)


def test_a_place_that_is_not_reached() -> None:
    """A wrong name does not pass for a test: it says which places were reached."""
    reached = r"'chrage': .* not reached.*before 'order', during 'order', after 'order'"
    with pytest.raises(AssertionError, match=reached), interrupt_at("chrage"):
        booking("visa")
    with pytest.raises(AssertionError, match="No step was"), interrupt_at("charge"):
        booking("visa")  # a replay


def test_another_place() -> None:
    with pytest.raises(ValueError, match="not 'inside'"), interrupt_at("charge", when="inside"):  # type: ignore[arg-type]
        pass
