"""A saga, killed at each statement and each border of its steps: a retry finishes it, and nothing
happens twice.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from django_idempotency import idempotent_function
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.intervening import undo_by_hand
from django_idempotency.contrib.steps.models import Step
from django_idempotency.contrib.steps.rules import StepState
from django_idempotency.core.hashing import record_id
from django_idempotency.core.interventions import Intervention
from django_idempotency.errors import HeldForPerson, InProgress, OperationCancelled
from django_idempotency.functions import current_operation
from django_idempotency.runtime.registry import stores
from django_idempotency.testing import crash_matrix
from testproject.payments.models import Effect
from tests.docs.pages import table

from ..support.provider import Provider

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]


PROVIDER: Provider


@pytest.fixture(autouse=True)
def provider(tmp_path: Path) -> Provider:
    global PROVIDER  # noqa: PLW0603 - undos are functions of a module
    PROVIDER = Provider(tmp_path)
    return PROVIDER


class SoldOut(Exception):
    """The last seat is gone."""


def make_order(card: str) -> str:
    PROVIDER.note("order", card)
    Effect.objects.create(label="order", idempotency_key=card)
    return card


def cancel_order(card: str) -> None:
    PROVIDER.note("undo order", card)
    assert Effect.objects.filter(label="order", idempotency_key=card).exists()
    Effect.objects.create(label="undo order", idempotency_key=card)


def reserve(card: str, *, idempotency_key: str) -> list[str]:
    return PROVIDER.call("reserve", card, idempotency_key)


def release(reserved: list[str], *, idempotency_key: str) -> None:
    card, key = reserved
    assert PROVIDER.found("reserve", key)
    PROVIDER.call("undo reserve", card, idempotency_key)


def pay(card: str, *, idempotency_key: str) -> list[str]:
    return PROVIDER.call("pay", card, idempotency_key)


def refund(paid: list[str], *, idempotency_key: str) -> None:
    card, key = paid
    assert PROVIDER.found("pay", key)
    PROVIDER.call("undo pay", card, idempotency_key)


def find(asked: Any) -> Any:
    """Tell the truth."""
    receipt = PROVIDER.found(asked.name, asked.key)
    return asked.run() if receipt is None else asked.found(receipt)


def saga(card: str) -> list[Any]:
    """Do one thing here, one elsewhere, and one elsewhere at most once."""
    run = current_operation()
    assert run is not None
    return [
        run.step("order", make_order, card, undo=cancel_order),
        run.step("reserve", reserve, card, undo=release, ask=find),
        run.step("pay", pay, card, undo=refund, at="most_once", ask=find),
    ]


@idempotent_function(key="card", guarantee="lease", extensions=[UndoOn(SoldOut)])
def book(card: str) -> list[Any]:
    return saga(card)


@idempotent_function(key="card", guarantee="lease", extensions=[UndoOn(SoldOut)])
def book_in_vain(card: str) -> list[Any]:
    saga(card)
    raise SoldOut


def pay_and_break(card: str, *, idempotency_key: str) -> list[str]:
    """Pay, and lose the response."""
    PROVIDER.call("pay", card, idempotency_key)
    raise TimeoutError


def refund_in_doubt(paid: Any, *, idempotency_key: str) -> None:
    """Refund what was paid, if it was."""
    if (receipt := PROVIDER.found("pay", paid.key)) is not None:
        refund(receipt, idempotency_key=idempotency_key)


@idempotent_function(key="card", guarantee="lease")
def book_and_hold(card: str) -> None:
    run = current_operation()
    assert run is not None
    run.step("order", make_order, card, undo=cancel_order)
    run.step("reserve", reserve, card, undo=release, ask=find)
    run.step("pay", pay_and_break, card, undo=refund_in_doubt, at="most_once")


def undone_by_hand(card: str) -> str:
    """Let an operation be held, and undo it by hand."""
    for _ in range(2):
        with suppress(TimeoutError, HeldForPerson, OperationCancelled):
            book_and_hold(card)
    rows = Step.objects.filter(record=record_of(card), due_at__isnull=False)
    rows.update(due_at=datetime.now(timezone.utc))  # time passes
    done = undo_by_hand(
        stores["default"], record_of(card), using="default", audit=lambda _: None, ttl=86400
    )
    if done.outcome not in (Intervention.DONE, Intervention.ALREADY) or done.failed:
        raise InProgress
    with pytest.raises(OperationCancelled):
        book_and_hold(card)
    return "cancelled"


def record_of(card: str) -> Any:
    return record_id(book_and_hold.idempotency.scope, book_and_hold.idempotency.key_for(card=card))


def written(card: str) -> Counter[str]:
    """Count what is committed here for a card."""
    return Counter(Effect.objects.filter(idempotency_key=card).values_list("label", flat=True))


def promised() -> dict[tuple[str, str], int]:
    """Return what the page says: step or undo, place → how often its body begins in all."""
    numbers = {"once": 1, "twice": 2}
    names = ("order", "reserve", "pay", "undo order", "undo reserve")
    return {
        (name, row[0].split()[0].rstrip(":")): numbers[cell.split(",")[0]]
        for row in table("how-to/steps.md", "## If the process dies")
        for name, cell in zip(names, row[1:], strict=True)
    }


@pytest.mark.sqlite
def test_a_saga_that_succeeds(provider: Provider) -> None:
    """Each step has one effect, what is at most once is called once, and each body begins as often
    as the page says.
    """
    seen = {}
    for crash in crash_matrix(book):
        begun = provider.notes(crash.key)
        assert written(crash.key) == {"order": 1}, crash
        assert provider.effects(crash.key) == {"reserve": 1, "pay": 1}, crash
        assert begun["pay"] == 1, crash
        assert book(crash.key) == crash.result, crash
        assert provider.notes(crash.key) == begun, crash
        if crash.point.at == "step":
            seen[crash.point.name, crash.point.when] = begun[crash.point.name]
    assert seen == {
        place: number for place, number in promised().items() if not place[0].startswith("undo")
    }


@pytest.mark.either_server
def test_a_saga_that_gives_up(provider: Provider) -> None:
    """After two deaths, all that was done is undone once, and nothing else is."""
    points = set()
    for crash in crash_matrix(book_in_vain, raises=(SoldOut, OperationCancelled), deaths=2):
        points.add((crash.point.name, crash.point.when))
        begun = provider.notes(crash.key)
        assert written(crash.key) == {"order": 1, "undo order": 1}, crash
        assert provider.effects(crash.key) == {
            "reserve": 1,
            "pay": 1,
            "undo reserve": 1,
            "undo pay": 1,
        }, crash
        assert begun["pay"] == 1, crash
        assert max(begun.values()) <= 3, crash
        with pytest.raises((SoldOut, OperationCancelled)):
            book_in_vain(crash.key)
        assert provider.notes(crash.key) == begun, crash
        last = Step.objects.order_by("-pk").values_list("run", flat=True)[0]
        states = Step.objects.filter(run=last).order_by("position").values_list("state", flat=True)
        assert list(states) == [StepState.UNDONE] * 3 + [StepState.BARRIER], crash
    assert points >= set(promised())


@pytest.mark.sqlite
def test_an_undo_dies(provider: Provider) -> None:
    """The body of an undo begins as often as the page says."""
    seen = {}
    undos = {place: number for place, number in promised().items() if place[0].startswith("undo")}
    for crash in crash_matrix(
        book_in_vain,
        raises=(SoldOut, OperationCancelled),
        only=lambda point: point.at == "step" and (point.name, point.when) in undos,
    ):
        seen[crash.point.name, crash.point.when] = provider.notes(crash.key)[crash.point.name]
    assert seen == undos


@pytest.mark.either_server
def test_a_person_undoes_what_is_held(provider: Provider) -> None:
    """Killed at each statement, the undo by hand is typed again: each undo has one effect, and the
    operation is cancelled.
    """
    points = set()
    for crash in crash_matrix(undone_by_hand):
        points.add((crash.point.name, crash.point.when))
        assert crash.result == "cancelled", crash
        assert written(crash.key) == {"order": 1, "undo order": 1}, crash
        effects = provider.effects(crash.key)
        # None, if it dies before the only call.
        assert effects["pay"] == effects["undo pay"] <= 1, crash
        assert (effects["reserve"], effects["undo reserve"]) == (1, 1), crash
    undos = [f"undo {step}" for step in ("pay", "reserve", "order")]
    assert points >= {(undo, when) for undo in undos for when in ("before", "during", "after")}
