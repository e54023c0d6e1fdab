"""Steps in doubt: caught exceptions, late owners, held records, and what no command may take for
granted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.housekeeping import purge
from django_idempotency.contrib.steps.models import Step
from django_idempotency.contrib.steps.rules import StepState
from django_idempotency.errors import ConfigurationError, HeldForPerson, OwnershipLost
from django_idempotency.runtime.handle import HELD_FOR

from ...functions.helpers import Clock
from . import work
from .test_completing import complete, give_up
from .test_resuming import guarded, operation
from .test_undoing import saga, states
from .work import PROVIDER, Crash, Declined

pytestmark = pytest.mark.django_db


def test_no_step_follows_one_in_doubt(clock: Clock) -> None:
    """A caught exception that is no result leaves its step in doubt: another provider must not be
    asked instead.
    """

    def body(card: str) -> Any:
        try:
            return operation().step("charge", work.charge, 1)
        except TimeoutError:
            return operation().step("book", work.book, 1)

    book = guarded(body)
    PROVIDER.fails["charge"] = TimeoutError()
    with pytest.raises(ConfigurationError, match="'charge' has not ended"):
        book("visa")
    PROVIDER.fails.clear()
    assert book("visa").startswith("charge")
    assert PROVIDER.asked("book") == 0


def test_an_exception_of_undo_on_is_no_proof(clock: Clock) -> None:
    """What had its effect and then raised is asked about, and undone."""

    def body(card: str) -> Any:
        return operation().step("charge", work.charge, 1, undo=work.refund, ask=work.found_out)

    book = guarded(body, extensions=[UndoOn(TimeoutError)])
    PROVIDER.breaks["charge"] = TimeoutError()
    work.ANSWER.append(lambda asked: asked.found(PROVIDER.effects[asked.key]))
    with pytest.raises(TimeoutError):
        book("visa")
    assert (PROVIDER.count("charge"), len(PROVIDER.undone)) == (1, 1)


def test_a_late_owner_undoes_nothing(clock: Clock) -> None:
    """An attempt whose lease has ended cannot undo what a later one has completed, and neither goes
    on.
    """
    late: list[Any] = []

    def body(card: str) -> Any:
        if not late:
            late.append(operation())
            saga(card)
            raise Crash
        return saga(card)

    book = guarded(body, extensions=[UndoOn(Declined)])
    with pytest.raises(Crash):
        book("visa")
    clock.go(31)
    done = book("visa")
    [run] = late
    for known in (True, False):
        run._steps.is_lost = lambda known=known: known
        with pytest.raises(OwnershipLost):
            run.undo_steps()
    with pytest.raises(OwnershipLost):
        run.step("late", work.make_order, "visa")
    assert PROVIDER.undone == []
    assert work.labels() == ["order visa"]
    assert states() == ["DONE", "DONE", "DONE", "ENDED"]
    assert book("visa") == done


def test_a_late_owner_does_not_take_back(clock: Clock) -> None:
    """A step that a later attempt has taken over is not asked about, or done, by an earlier one."""
    late: list[Any] = []

    def body(card: str) -> Any:
        if not late:
            late.append(operation())
        return operation().step("charge", work.charge, 1, at="most_once", ask=work.found_out)

    book = guarded(body)
    PROVIDER.fails["charge"] = Crash()
    with pytest.raises(Crash):
        book("visa")
    Step.objects.update(attempt=2)
    [run] = late
    run._steps.is_lost = lambda: False
    run._steps.open, run._steps._names, run._steps._position = None, set(), 0
    run._steps.forget()
    with pytest.raises(OwnershipLost):
        run.step("charge", work.charge, 1, at="most_once", ask=work.found_out)
    assert PROVIDER.asked("charge") == 1


def test_the_steps_of_a_held_record_stay(clock: Clock) -> None:
    """No purge deletes what a person must know, so that a release does not call twice."""

    def body(card: str) -> Any:
        return operation().step("charge", work.charge, 1, at="most_once")

    book = guarded(body)
    PROVIDER.breaks["charge"] = Crash()
    with pytest.raises(Crash):
        book("visa")
    clock.go(31)
    with pytest.raises(HeldForPerson):
        book("visa")
    left = Step.objects.get().purge_at - timezone.now()
    assert left > timedelta(seconds=HELD_FOR * 0.9)
    assert purge("default", limit=10) == 0


def test_a_later_step_with_an_undo_is_found(clock: Clock) -> None:
    """The first step need not be one that can be undone."""

    def body(card: str) -> Any:
        operation().step("order", work.make_order, card)
        operation().step("charge", work.charge, 1, undo=work.refund)
        raise Crash

    book = guarded(body)
    with pytest.raises(Crash):
        book("visa")
    Step.objects.update(arguments=None)
    clock.go(31)
    assert give_up() == "Undone.\n"
    assert len(PROVIDER.undone) == 1


def test_a_record_that_is_gone_is_not_undone(clock: Clock) -> None:
    """Nobody can tell how its operation ended; nor may another life of the key be taken for it."""
    book = guarded(saga)
    PROVIDER.breaks["charge"] = Crash()
    with pytest.raises(Crash):
        book("visa")
    clock.go(10 * 86400)
    assert "its record is gone" in complete()
    book("visa")
    assert "its record is gone" in complete()
    assert PROVIDER.undone == []
    assert Step.objects.filter(state=StepState.BARRIER).count() == 0


def test_what_failed_is_not_called_again(clock: Clock) -> None:
    """A function that raised has told its caller: only its caller calls again."""
    book = guarded(saga)
    PROVIDER.fails["charge"] = TimeoutError()
    with pytest.raises(TimeoutError):
        book("visa")
    PROVIDER.fails.clear()
    assert "1 waiting" in complete()
    assert PROVIDER.asked("charge") == 1


def test_where_nothing_can_be_undone(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """undo_steps() never says that it has undone what it has not."""

    def inside(card: str) -> Any:
        with transaction.atomic():
            return operation().undo_steps()

    def within(card: str) -> Any:
        return operation().step("order", lambda: operation().undo_steps())

    def here(card: str) -> Any:
        operation().step("order", work.make_order, card)
        return operation().undo_steps()

    with pytest.raises(ConfigurationError, match="inside the step"):
        guarded(within)("visa")
    with pytest.raises(ConfigurationError, match="atomic"):
        guarded(here, guarantee="atomic", store="orm")("visa")
    monkeypatch.setenv("IDEMPOTENCY_DISABLED", "1")
    assert guarded(here)("visa") is False


def test_a_function_that_takes_anything(clock: Clock) -> None:
    """An SDK's **params may want the key or not: that is asked, not guessed."""

    def sdk(**params: Any) -> str:
        return "charged"

    with pytest.raises(ConfigurationError, match="takes any keyword"):
        guarded(lambda card: operation().step("charge", sdk, amount=5))("visa")


def test_a_coroutine_that_nobody_awaits(clock: Clock) -> None:
    """What has not run is not done."""

    def later(*, idempotency_key: str) -> Any:
        return work.acharge(1, idempotency_key=idempotency_key)

    with pytest.raises(ConfigurationError, match="has not run"):
        guarded(lambda card: operation().step("charge", later))("visa")
    assert Step.objects.count() == 0


def test_arguments_are_those_of_the_call(clock: Clock) -> None:
    """What a body changes later is not what the command calls with; hashed keys keep no arguments
    in plain.
    """
    from django_idempotency import idempotent_function

    @idempotent_function(key="cart[0]", key_prefix="carts")
    def shop(cart: list[str]) -> Any:
        return operation().step("order", empty, cart)

    def empty(cart: list[str]) -> str:
        return cart.pop()

    shop(["visa", "mug"])
    stored = Step.objects.get(position=1).arguments
    assert stored is not None
    assert b"mug" in bytes(stored)
