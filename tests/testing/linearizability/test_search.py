"""Which histories have an order that explains them, and what is said of the others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_idempotency.testing.linearizability import Answer, Call, assert_linearizable, violations
from django_idempotency.testing.linearizability.model import ASIDE, Key, step

RAN, FAILED, DROPPED, LOST = Answer.EXECUTED, Answer.FAILED, Answer.DROPPED, Answer.LOST
REPLAY, BUSY, MISMATCH, REFUSED = Answer.REPLAYED, Answer.BUSY, Answer.MISMATCH, Answer.REFUSED
UNKNOWN, COUNTED, FORGOTTEN = Answer.UNKNOWN, Answer.COUNTED, Answer.FORGOTTEN


def call(
    invoked: float,
    responded: float | None,
    answer: Answer,
    response: object = None,
    request: str = "pay 5",
) -> Call:
    return Call(
        key="order-17",
        client="anna",
        invoked=invoked,
        responded=responded,
        answer=answer,
        response=response,
        request=request,
    )


# Fmt: skip.
ACCEPTED = {
    "nothing": [],
    "a first call and its replay": [call(0, 1, RAN, "A"), call(2, 3, REPLAY, "A")],
    "a replay that overtakes the response of the first call": [
        call(0, 9, RAN, "A"),
        call(1, 2, REPLAY, "A"),
    ],
    "busy while the first call runs": [call(0, 9, RAN, "A"), call(1, 2, BUSY), call(3, 4, BUSY)],
    "busy, but the first call was sent later": [call(0, 9, BUSY), call(8, 12, RAN, "A")],
    "a mismatch while the first call runs": [
        call(0, 9, RAN, "A"),
        call(1, 2, MISMATCH, request="pay 6"),
    ],
    "a mismatch after completion": [call(0, 1, RAN, "A"), call(2, 3, MISMATCH, request="pay 6")],
    "a mismatch after a failure: the fingerprint still binds": [
        *(call(0, 1, FAILED), call(2, 3, MISMATCH, request="pay 6")),
        call(4, 5, RAN, "A"),
    ],
    "a failure, and a second run": [
        call(0, 1, FAILED),
        call(2, 3, RAN, "A"),
        call(4, 5, REPLAY, "A"),
    ],
    "a corrected request after a validation error": [
        call(0, 1, DROPPED),
        call(2, 3, RAN, "A", request="pay 6"),
    ],
    "busy because of a call that fails": [
        call(0, 9, FAILED),
        call(1, 2, BUSY),
        call(3, 12, RAN, "A"),
    ],
    # Calls whose outcome is unknown may have happened, or not, or happen later.
    "an unknown call that did nothing": [call(0, None, UNKNOWN), call(2, 3, RAN, "A")],
    "an unknown call that was completed": [
        call(0, None, UNKNOWN),
        call(2, 3, REPLAY, "A"),
        call(4, 5, REPLAY, "A"),
    ],
    "an unknown call that completes late": [
        call(0, None, UNKNOWN),
        call(2, 3, BUSY),
        call(4, 5, REPLAY, "A"),
    ],
    "a dead owner that leaves the key busy": [
        call(0, None, UNKNOWN),
        call(2, 3, BUSY),
        call(4, 5, RAN, "A"),
    ],
    "an unknown call that had the other request": [
        *(call(0, None, UNKNOWN, request="pay 6"), call(2, 3, MISMATCH)),
        call(4, 5, REPLAY, "A", request="pay 6"),
    ],
    "of two unknown calls, either": [
        *(call(0, None, UNKNOWN), call(0, None, UNKNOWN)),
        *(call(2, 3, COUNTED, 0), call(4, 5, BUSY), call(6, 7, COUNTED, 1)),
    ],
    "an owner that finds its record taken over": [
        call(0, 9, LOST, "A"),
        call(1, 5, RAN, "B"),
        call(6, 7, REPLAY, "B"),
    ],
    "a record that was settled after the response": [
        call(0, 1, LOST, "A"),
        call(2, 3, BUSY),
        call(4, 5, REPLAY, "A"),
    ],
    "a refusal that leaves the key claimed": [
        call(0, 1, REFUSED),
        call(2, 3, BUSY),
        call(4, 5, RAN, "A"),
    ],
    # Effects are counted where they are committed with the response.
    "one effect": [
        call(0, 1, COUNTED, 0),
        call(2, 5, RAN, "A"),
        call(3, 4, COUNTED, 1),
        call(6, 7, COUNTED, 1),
    ],
    "a failure without an effect": [call(0, 1, FAILED), call(2, 3, COUNTED, 0)],
    "a refusal by the view without an effect": [call(0, 1, DROPPED), call(2, 3, COUNTED, 0)],
    "a second life": [
        call(0, 1, RAN, "A"),
        call(2, 3, FORGOTTEN),
        call(4, 5, RAN, "B"),
        call(6, 7, COUNTED, 2),
    ],
    "a deletion whose moment is unknown": [
        call(0, 1, RAN, "A"),
        call(2, None, FORGOTTEN),
        call(3, 4, RAN, "B"),
    ],
    "twenty at once": [
        call(0, 9, RAN, "A"),
        *(call(0, 9, BUSY) for _ in range(12)),
        *(call(0, 9, REPLAY, "A") for _ in range(8)),
    ],
}

REJECTED = {
    "two runs": [call(0, 1, RAN, "A"), call(2, 3, RAN, "B")],
    "two runs with one response": [call(0, 1, RAN, "A"), call(2, 3, RAN, "A")],
    "two runs at once": [call(0, 9, RAN, "A"), call(0, 9, RAN, "B")],
    "a replay of nothing": [call(0, 1, REPLAY, "A")],
    "a stale replay: before the call that it repeats": [
        call(0, 1, REPLAY, "A"),
        call(2, 3, RAN, "A"),
    ],
    "a replay of another response": [call(0, 1, RAN, "A"), call(2, 3, REPLAY, "B")],
    "two different replays": [
        call(0, None, UNKNOWN),
        call(2, 3, REPLAY, "A"),
        call(4, 5, REPLAY, "B"),
    ],
    "a run after a replay was seen": [
        call(0, None, UNKNOWN),
        call(2, 3, REPLAY, "A"),
        call(4, 5, RAN, "A"),
    ],
    "a failure after a replay was seen": [
        call(0, 1, RAN, "A"),
        call(2, 3, REPLAY, "A"),
        call(4, 5, FAILED),
    ],
    "a replay of a failure": [call(0, 1, FAILED), call(2, 3, REPLAY, None)],
    "busy after completion": [call(0, 1, RAN, "A"), call(2, 3, BUSY)],
    "busy after a replay, while the first still waits for its response": [
        *(call(0, 9, RAN, "A"), call(1, 2, REPLAY, "A"), call(3, 4, BUSY))
    ],
    "busy, and no other call": [call(0, 1, BUSY)],
    "two that keep each other busy": [call(0, 9, BUSY), call(1, 8, BUSY)],
    "busy after a failure": [call(0, 1, FAILED), call(2, 3, BUSY)],
    "a mismatch with itself": [call(0, 1, RAN, "A"), call(2, 3, MISMATCH)],
    "a mismatch with nothing": [call(0, 1, MISMATCH), call(2, 3, RAN, "A", request="pay 6")],
    "the response of another request": [
        call(0, 1, RAN, "A"),
        call(2, 3, REPLAY, "A", request="pay 6"),
    ],
    "another request after a failure": [call(0, 1, FAILED), call(2, 3, RAN, "A", request="pay 6")],
    "a lost record that is replayed, after another run": [
        *(call(0, 9, LOST, "A"), call(1, 5, RAN, "B"), call(6, 7, REPLAY, "A"))
    ],
    "a refusal that is replayed": [call(0, 1, REFUSED), call(2, 3, REPLAY, "A")],
    "an effect lost after the response": [call(0, 1, RAN, "A"), call(2, 3, COUNTED, 0)],
    "an effect lost after a replay was seen": [
        *(call(0, None, UNKNOWN), call(2, 3, REPLAY, "A"), call(4, 5, COUNTED, 0))
    ],
    "an effect too many": [call(0, None, UNKNOWN), call(1, 2, RAN, "A"), call(4, 5, COUNTED, 2)],
    "an effect before any call": [call(0, 1, COUNTED, 1), call(2, 3, RAN, "A")],
    "an effect of a failure": [call(0, 1, FAILED), call(2, 3, COUNTED, 1)],
    "an effect that comes and goes": [
        call(0, None, UNKNOWN),
        call(1, 2, COUNTED, 1),
        call(3, 4, COUNTED, 0),
    ],
    "a replay of an earlier life": [
        call(0, 1, RAN, "A"),
        call(2, 3, FORGOTTEN),
        call(4, 5, REPLAY, "A"),
    ],
    "one run too many in a crowd": [
        *(call(0, 9, RAN, "A"), call(0, 9, RAN, "B")),
        *(call(0, 9, BUSY) for _ in range(12)),
        *(call(0, 9, REPLAY, "A") for _ in range(8)),
    ],
}


@pytest.mark.parametrize("history", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(history: Sequence[Call]) -> None:
    assert_linearizable(history)


@pytest.mark.parametrize("history", REJECTED.values(), ids=REJECTED)
def test_rejected(history: Sequence[Call]) -> None:
    (violation,) = violations(history)
    assert violation.culprit in history


def test_keys_are_apart() -> None:
    """Two runs of two keys are right, and only the wrong key is reported."""
    wrong = REJECTED["two runs"]
    right = [Call(key="order-18", invoked=0, responded=1, answer=RAN, response="A")]
    assert [violation.culprit.key for violation in violations([*wrong, *right])] == ["order-17"]


def test_the_explanation() -> None:
    """It ends with the first impossible response, leaves out what makes no difference, and says
    what the key was.
    """
    history = [
        *(
            call(0, 0.1, RAN, "A"),
            call(0, 0.05, BUSY),
            call(0.15, 0.2, REPLAY, "A"),
            call(0.3, None, UNKNOWN),
        ),
        *(call(0.35, 0.4, RAN, "B"), call(0.36, 0.6, REPLAY, "A"), call(0.7, 0.8, RAN, "C")),
    ]
    with pytest.raises(AssertionError) as raised:
        assert_linearizable(history)
    assert [line.rstrip() for line in str(raised.value).splitlines()] == [
        "Key 'order-17': no order explains the marked response.",
        "The key was completed with 1 effect: 'A'.",
        "        0.0 ms  ███████                   anna  ran: 'A'",
        "      350.0 ms                      ████  anna  ran: 'B'  <-- impossible",
    ]


def test_a_response_too_long_to_show() -> None:
    """It is cut."""
    (violation,) = violations([call(0, 1, REPLAY, "A" * 100)])
    assert "A…" in str(violation)


@pytest.mark.parametrize(
    "given", [{"responded": None, "answer": BUSY}, {"responded": -1, "answer": RAN}]
)
def test_a_fact_that_cannot_be(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="A call"):
        Call(key="order-17", invoked=0, **given)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------- against all orders


@st.composite
def calls(draw: st.DrawFn) -> Call:
    answer = draw(st.sampled_from(Answer))
    invoked = draw(st.integers(0, 8))
    responded: int | None = invoked + draw(st.integers(0, 6))
    if answer in (UNKNOWN, FORGOTTEN) and draw(st.booleans()):
        responded = None
    shown = st.integers(0, 2) if answer is COUNTED else st.sampled_from("AB")
    return Call(
        key="key",
        invoked=invoked,
        responded=responded,
        answer=answer,
        request="pay 5" if answer in ASIDE else draw(st.sampled_from(["pay 5", "pay 5", "pay 6"])),
        response=draw(shown) if answer in (RAN, LOST, REPLAY, COUNTED) else None,
    )


def explained(history: Sequence[Call]) -> bool:
    """Does one of all orders, of all selections of the open calls, explain a history?"""
    orders = (order for size in range(len(history) + 1) for order in permutations(history, size))
    return any(explains(order, history) for order in orders)


def explains(order: Sequence[Call], history: Sequence[Call]) -> bool:
    if any(each.required and not any(each is other for other in order) for each in history):
        return False
    if any(
        later.deadline < earlier.invoked
        for number, earlier in enumerate(order)
        for later in order[number:]
    ):
        return False
    keys = {Key()}
    for number, each in enumerate(order):
        latest = min(other.deadline for other in order[number:])
        before = order[: number + 1]
        rivals = [
            other
            for other in history
            if other.answer not in ASIDE
            and other.invoked <= latest
            and not any(other is past for past in before)
        ]
        keys = {after for key in keys for after in step(key, each, rivals)}
    return bool(keys)


@settings(deadline=None, max_examples=150)
@given(st.lists(calls(), max_size=5))
def test_all_orders(history: list[Call]) -> None:
    """The search finds an order exactly if trying all of them does, and explains if there is
    none.
    """
    found = violations(history)
    assert bool(found) is not explained(history)
    for violation in found:
        assert str(violation)
        assert violations(violation.calls)
