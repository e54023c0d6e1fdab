"""Errors of guarded functions say which function and which argument, and what to type."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from django_idempotency import idempotent_function
from django_idempotency.contrib.tools.refusals import problem_of, refusal
from django_idempotency.errors import (
    HeldForPerson,
    IdempotencyError,
    InProgress,
    KeyMissing,
    LeaseInTransaction,
    RequestMismatch,
    StoreUnavailable,
)
from django_idempotency.functions.wording import worded
from django_idempotency.stores.orm import ORMStore

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.any_database]
NAME = f"{__name__}.charge"


@idempotent_function(
    data_keyword_argument="order",
    key="id",
    validate="amount",
    required=True,
    on_store_failure="closed",
)
def charge(*, order: dict[str, Any]) -> int:
    if order.get("again"):
        return charge(order=order)
    if order.get("meanwhile"):
        return charge(order={**order, "meanwhile": False})
    return 1


def said(raised: type[IdempotencyError], **order: Any) -> str:
    """Call the function, and return the text of its error."""
    with pytest.raises(raised) as caught:
        charge(order=order)
    assert not {"Retry-After", "request", "header"} & set(
        str(caught.value).replace(".", " ").split()
    )
    return str(caught.value)


def test_another_amount() -> None:
    """A mismatch names the argument that differs, and what to call."""
    charge(order={"id": 17, "amount": 5})
    text = said(RequestMismatch, id=17, amount=6)
    assert "charge was called before with the same key (key='id') and with another 'amount'" in text
    assert "Call it with the 'amount' of that call" in text


def test_a_missing_key() -> None:
    """It names the expression that finds nothing."""
    assert "its key (key='id') is missing" in said(KeyMissing, amount=5)


def test_a_call_inside_itself() -> None:
    """It names the function, not only the fact."""
    text = said(IdempotencyError, id=18, amount=5, again=True)
    assert "charge was called inside itself with the same key (key='id')" in text


def test_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the call and after it: nothing that it wrote is kept."""

    def away(*_: Any) -> Any:
        raise StoreUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(ORMStore, "claim", away)
        before = said(StoreUnavailable, id=19, amount=5)
    commit, calls = ORMStore.commit, [away]

    def fails_once(*given: Any) -> bool:
        return (calls.pop() if calls else commit)(*given)

    monkeypatch.setattr(ORMStore, "commit", fails_once)
    assert said(StoreUnavailable, id=19, amount=5) == before
    assert before.startswith("The store of ")
    assert "charge cannot be reached" in before


@idempotent_function(data_keyword_argument="order", key="id", guarantee="lease")
def leased(*, order: dict[str, Any]) -> int:
    return 1


def test_a_lease_in_a_transaction() -> None:
    """It names the function that was called there."""
    with (
        transaction.atomic(),
        pytest.raises(
            LeaseInTransaction, match=r"leased has guarantee=\"lease\", and was called inside"
        ),
    ):
        leased(order={"id": 1})


def test_the_caller_of_a_tool_is_told_nothing_of_it() -> None:
    """A program at the other end hears what any client hears."""
    charge(order={"id": 20, "amount": 5})
    with pytest.raises(RequestMismatch) as caught:
        charge(order={"id": 20, "amount": 6})
    problem = problem_of(caught.value)
    assert problem is not None
    detail = refusal(problem)["structuredContent"]["detail"]
    assert "charge" not in detail
    assert detail.startswith("This idempotency key was used for a different request")


@pytest.mark.parametrize(
    "error", [InProgress("as the project says"), HeldForPerson("as it was held")]
)
def test_a_sentence_of_somebody_else_stays(error: IdempotencyError) -> None:
    """Only what a class says by itself is worded anew."""
    terms = charge.idempotency._terms
    text = str(error)
    assert str(worded(error, terms)) == text
    assert "Call it again with the same arguments in 7 s." in str(
        worded(InProgress(headers={"Retry-After": "7"}), terms)
    )
