"""The same steps in a coroutine, and as blocks."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_idempotency import idempotent_function
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.models import Step
from django_idempotency.errors import ConfigurationError

from ...functions.helpers import Clock
from . import work
from .test_resuming import guarded, operation
from .work import PROVIDER, Crash, Declined

pytestmark = pytest.mark.django_db(transaction=True)


def aguarded(body: Any, **terms: Any) -> Any:
    """Return a guarded coroutine function, called from sync code."""

    @idempotent_function(key="card", key_prefix="book", **terms)
    async def book(card: str) -> Any:
        return await body(card)

    return async_to_sync(book)


async def booking(card: str) -> Any:
    order = await operation().astep("order", work.make_order, card, undo=work.cancel_order)
    charged = await operation().astep("charge", work.acharge, order, undo=work.arefund)
    async with operation().astep("book") as step:
        if not step.done:
            step.result = PROVIDER.do("book", step.key)
    return [order, charged, step.result]


def test_a_coroutine_continues(clock: Clock) -> None:
    """What is done is not done again."""
    book = aguarded(booking)
    PROVIDER.breaks["book"] = Crash()
    with pytest.raises(Crash):
        book("visa")
    clock.go(31)
    first = book("visa")
    assert book("visa") == first
    assert (work.labels(), PROVIDER.count("charge"), PROVIDER.count("book")) == (
        ["order visa"],
        1,
        1,
    )
    assert (PROVIDER.asked("charge"), PROVIDER.asked("book")) == (1, 2)


def test_a_coroutine_gives_up(clock: Clock) -> None:
    """Undos may be coroutine functions, too."""
    book = aguarded(booking, extensions=[UndoOn(Declined)])
    PROVIDER.fails["book"] = Declined()
    with pytest.raises(Declined):
        book("visa")
    assert [what for what, _ in PROVIDER.calls] == ["charge", "book", "refund"]
    assert len(work.labels()) == 2
    assert Step.objects.exclude(due_at=None).count() == 0


def test_a_coroutine_cannot_write_here(clock: Clock) -> None:
    """What writes here is a sync function: a transaction belongs to one thread."""

    async def body(card: str) -> None:
        await operation().astep("charge", work.acharge, 1, here=True)

    with pytest.raises(ConfigurationError, match="async"):
        aguarded(body)("visa")


def test_a_block(clock: Clock) -> None:
    """A block is skipped once it is done, and its key is that of the step."""

    def body(card: str) -> Any:
        with operation().step("charge") as step:
            if not step.done:
                step.result = PROVIDER.do("charge", step.key)
        if len(PROVIDER.calls) == 1 and not tries:
            tries.append(1)
            raise TimeoutError
        return step.result

    tries: list[int] = []
    book = guarded(body)
    with pytest.raises(TimeoutError):
        book("visa")
    assert book("visa") == next(iter(PROVIDER.effects.values()))
    assert PROVIDER.asked("charge") == 1
