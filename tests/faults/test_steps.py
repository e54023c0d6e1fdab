"""A saga, killed at each statement and each border of its steps: a retry finishes it, and nothing happens twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from django_idempotency import idempotent_function
from django_idempotency.core.steps import StepState
from django_idempotency.errors import OperationCancelled
from django_idempotency.functions import current_operation
from django_idempotency.steps.models import Step
from django_idempotency.testing import crash_matrix
from testproject.payments.models import Effect
from tests.docs.pages import table

from ..support.provider import Provider

pytestmark = [pytest.mark.faults, pytest.mark.sqlite, pytest.mark.django_db(transaction=True)]


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


@idempotent_function(key="card", guarantee="lease", undo_on=[SoldOut])
def book(card: str) -> list[Any]:
    return saga(card)


@idempotent_function(key="card", guarantee="lease", undo_on=[SoldOut])
def book_in_vain(card: str) -> list[Any]:
    saga(card)
    raise SoldOut


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


def test_a_saga_that_succeeds(provider: Provider) -> None:
    """Each step has one effect, what is at most once is called once, and each body begins as often as the page says."""
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
    assert seen == {place: number for place, number in promised().items() if not place[0].startswith("undo")}


def test_a_saga_that_gives_up(provider: Provider) -> None:
    """After two deaths, all that was done is undone once, and nothing else is."""
    points = set()
    for crash in crash_matrix(book_in_vain, raises=(SoldOut, OperationCancelled), deaths=2):
        points.add((crash.point.name, crash.point.when))
        begun = provider.notes(crash.key)
        assert written(crash.key) == {"order": 1, "undo order": 1}, crash
        assert provider.effects(crash.key) == {"reserve": 1, "pay": 1, "undo reserve": 1, "undo pay": 1}, crash
        assert begun["pay"] == 1, crash
        assert max(begun.values()) <= 3, crash
        with pytest.raises((SoldOut, OperationCancelled)):
            book_in_vain(crash.key)
        assert provider.notes(crash.key) == begun, crash
        last = Step.objects.order_by("-pk").values_list("run", flat=True)[0]
        states = Step.objects.filter(run=last).order_by("position").values_list("state", flat=True)
        assert list(states) == [StepState.UNDONE] * 3 + [StepState.BARRIER], crash
    assert points >= set(promised())


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
