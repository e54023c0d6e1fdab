"""A history reads what responses say."""

from __future__ import annotations

import pytest
from django.http import HttpResponse

from django_idempotency.core.statuses import HeaderStatus
from django_idempotency.testing import History
from django_idempotency.testing.linearizability import Answer


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        ("created", Answer.EXECUTED),
        ("released", Answer.DROPPED),
        ("failed", Answer.FAILED),
        ("lost", Answer.LOST),
        ("replayed", Answer.REPLAYED),
        ("in-progress", Answer.BUSY),
        ("mismatch", Answer.MISMATCH),
        ("refused", Answer.REFUSED),
        # These say nothing about what the record is.
        *((status, Answer.UNKNOWN) for status in ("not-stored", "expired", "held", "unknown")),
        # These ran without a guard.
        *((status, Answer.UNKNOWN) for status in ("degraded", "unguarded", "observed")),
        ("what another service says", Answer.UNKNOWN),
        (None, Answer.UNKNOWN),
    ],
)
def test_a_response(status: str | None, answer: Answer) -> None:
    """Its status says what became of the call; its status code and its body are what a replay must
    repeat.
    """
    response = HttpResponse(
        b"{}", status=201, headers={} if status is None else {"Idempotency-Status": status}
    )
    history = History()
    assert (
        history.send(lambda: response, key="order-17", client="anna", request="pay 5") is response
    )
    (call,) = history
    assert (call.answer, call.response) == (answer, (201, b"{}"))
    assert (call.key, call.client, call.request) == ("order-17", "anna", "pay 5")
    assert call.responded is not None
    assert call.responded >= call.invoked


def test_every_status_is_here() -> None:
    """A new value of the header needs a row above."""
    rows = test_a_response.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {status.value for status in HeaderStatus} <= {status for status, _ in rows}


def test_no_response() -> None:
    """Its outcome is unknown, and its error is raised."""
    history = History()

    def act() -> HttpResponse:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        history.send(act, key="order-17")
    (call,) = history
    assert (call.answer, call.responded) == (Answer.UNKNOWN, None)


def test_effects_and_the_end_of_a_record() -> None:
    history = History()
    assert history.count(lambda: 2, key="order-17") == 2
    history.forget("order-17")
    assert [(call.answer, call.response) for call in history] == [
        (Answer.COUNTED, 2),
        (Answer.FORGOTTEN, None),
    ]
    assert len(history) == 2
