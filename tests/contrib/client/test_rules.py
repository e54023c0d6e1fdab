"""The decisions about outgoing calls, as tables."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone

import pytest

from django_idempotency.contrib.client.rules import (
    BROKEN,
    NOT_SENT,
    CallState,
    KnownCall,
    Next,
    Verdict,
    ending,
    judge,
    next_for,
    pause,
    retry_after,
    stays_clean,
)

SUCCEEDED, REFUSED, VOID, UNKNOWN, OPEN, HELD, GIVEN_UP = (
    CallState.SUCCEEDED,
    CallState.REFUSED,
    CallState.VOID,
    CallState.UNKNOWN,
    CallState.OPEN,
    CallState.HELD,
    CallState.GIVEN_UP,
)
NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("status", "headers", "state", "retry"),
    [
        (200, {}, SUCCEEDED, False),
        (204, {}, SUCCEEDED, False),
        (201, {"stripe-should-retry": "true"}, SUCCEEDED, False),  # it is done
        (302, {}, REFUSED, False),
        (303, {}, REFUSED, False),  # perhaps it is done, and the result is elsewhere: its key stays
        (307, {"x-should-retry": "true"}, REFUSED, False),
        (400, {}, REFUSED, False),
        (402, {}, REFUSED, False),  # the card was declined
        (422, {}, REFUSED, False),
        (408, {}, UNKNOWN, True),
        (409, {}, UNKNOWN, True),  # a request with this key is running there
        (425, {}, REFUSED, True),
        (429, {}, REFUSED, True),
        (500, {}, UNKNOWN, True),
        (501, {}, UNKNOWN, True),
        (503, {}, UNKNOWN, True),
        # What the provider says counts before the status.
        (500, {"stripe-should-retry": "false"}, UNKNOWN, False),
        (409, {"x-should-retry": "false"}, UNKNOWN, False),
        (429, {"x-should-retry": "false"}, REFUSED, False),
        (400, {"stripe-should-retry": "true"}, UNKNOWN, True),
        (422, {"transient-error": "true"}, UNKNOWN, True),  # Adyen: it is still being processed
        (500, {"stripe-should-retry": "false", "x-should-retry": "true"}, UNKNOWN, False),
        (503, {"x-should-retry": " True "}, UNKNOWN, True),
        (503, {"x-should-retry": "perhaps"}, UNKNOWN, True),
    ],
)
def test_judge(status: int, headers: dict[str, str], state: CallState, retry: bool) -> None:
    found = judge(status, headers)
    assert (found.state, found.retry) == (state, retry)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (400, REFUSED),
        (402, REFUSED),
        (422, REFUSED),
        *((status, UNKNOWN) for status in (303, 401, 403, 404, 405, 407, 410)),
    ],
)
def test_a_refusal_after_an_attempt_that_may_have_worked(status: int, state: CallState) -> None:
    """A rotated credential or a proxy says nothing of the attempt before: only what the operation
    itself responds does.
    """
    assert ending(judge(status, {}), clean=False) is state
    assert ending(judge(status, {}), clean=True) is REFUSED


DONE = Verdict(state=SUCCEEDED, retry=False)
DECLINED = Verdict(state=REFUSED, retry=False, of_operation=True)
LIMITED = Verdict(state=REFUSED, retry=True)


@pytest.mark.parametrize(
    ("verdict", "clean", "resuming", "state"),
    [
        (DONE, True, False, SUCCEEDED),
        (DONE, False, True, SUCCEEDED),
        # By what the ledger has seen: a transport may have sent it before.
        (
            DECLINED,
            True,
            False,
            REFUSED,
        ),
        (DECLINED, False, False, REFUSED),
        (LIMITED, True, False, REFUSED),  # given up, and never let in
        (LIMITED, False, False, UNKNOWN),
        (NOT_SENT, True, False, REFUSED),
        (NOT_SENT, False, False, UNKNOWN),
        (BROKEN, True, False, UNKNOWN),
        (BROKEN, False, False, UNKNOWN),
        (BROKEN, False, True, OPEN),  # the next run of the command sends it again
        (LIMITED, False, True, OPEN),
        (DECLINED, False, True, REFUSED),
    ],
)
def test_ending(verdict: Verdict, clean: bool, resuming: bool, state: CallState) -> None:
    assert ending(verdict, clean=clean, resuming=resuming) is state


@pytest.mark.parametrize(
    ("verdict", "before", "after"),
    [
        (NOT_SENT, True, True),
        (NOT_SENT, False, False),
        (LIMITED, True, True),
        (BROKEN, True, False),
    ],
)
def test_stays_clean(verdict: Verdict, before: bool, after: bool) -> None:
    assert stays_clean(verdict, clean=before) is after


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7),
        (" 120 ", 120),
        ("0", 0),
        (None, 0),
        ("", 0),
        ("-3", 0),
        ("soon", 0),
        ("1.5", 0),  # not RFC 9110
        ("Mon, 23 Nov 99999 12:00:30 GMT", 0),
        ("Mon, 23 Nov 2026 12:00:30 +9999999999", 0),
        ("9" * 400, 1e9),  # more than anybody waits, and no error
        ("Mon, 23 Nov 2026 12:00:30 GMT", 30),
        ("Mon, 23 Nov 2026 12:00:30 -0000", 30),
        ("Mon, 23 Nov 2026 11:59:00 GMT", 0),  # it has passed
        ("Mon, 23 Nov 2026 14:00:30 +0200", 30),
        ("Mon, 99 Nov 2026 12:00:30 GMT", 0),
    ],
)
def test_retry_after(value: str | None, seconds: float) -> None:
    assert retry_after(value, now=NOW) == seconds


@pytest.mark.parametrize(
    ("retry", "most"),
    [(0, 0.5), (1, 1.0), (2, 2.0), (4, 8.0), (5, 10.0), (500, 10.0)],  # 0.5 * 2^n, at most 10
)
def test_pauses_grow(retry: int, most: float) -> None:
    """The longest pause doubles up to its limit, the shortest is none, and what the provider asks
    for is added.
    """
    arguments = {"base": 0.5, "longest": 10.0}
    assert pause(retry, floor=0, random=lambda: 0.0, **arguments) == 0
    assert pause(retry, floor=0, random=lambda: 1.0, **arguments) == most
    assert pause(retry, floor=7, random=lambda: 0.0, **arguments) == 7
    assert pause(retry, floor=7, random=lambda: 1.0, **arguments) == 7 + most


def test_full_jitter_is_uniform() -> None:
    """Pauses spread over the whole span, each tenth equally: clients of one outage do not come back
    together.
    """
    chance = random.Random(16)
    tenths = [0] * 10
    for _ in range(20_000):
        waited = pause(3, floor=5, base=0.5, longest=10, random=chance.random)
        tenths[int((waited - 5) / 4 * 10)] += 1
    assert sum(tenths) == 20_000
    assert max(abs(count - 2000) for count in tenths) < 200


DAY, MARGIN = timedelta(hours=24), timedelta(seconds=30)
MINE, OTHER = b"mine", b"other"


@pytest.mark.parametrize(
    ("state", "digest", "age", "step"),
    [
        (OPEN, MINE, timedelta(0), Next.AGAIN),
        (UNKNOWN, MINE, timedelta(hours=23), Next.AGAIN),
        (REFUSED, MINE, timedelta(hours=23), Next.AGAIN),
        (OPEN, MINE, DAY - MARGIN, Next.AGAIN),
        # The attempt might arrive too late.
        (
            OPEN,
            MINE,
            DAY - MARGIN + timedelta(seconds=1),
            Next.HOLD,
        ),
        (UNKNOWN, MINE, timedelta(days=3), Next.HOLD),
        (REFUSED, MINE, timedelta(days=3), Next.HOLD),
        (HELD, MINE, timedelta(0), Next.HOLD),
        (SUCCEEDED, MINE, timedelta(0), Next.REPLAY),
        (SUCCEEDED, MINE, timedelta(days=300), Next.REPLAY),  # we remember longer than the provider
        (SUCCEEDED, b"", timedelta(0), Next.REPLAY),  # erased, as its response is
        # Erased: nobody can tell whether this is the same request.
        (
            REFUSED,
            b"",
            timedelta(0),
            Next.MISMATCH,
        ),
        (GIVEN_UP, MINE, timedelta(0), Next.STOP),
        (VOID, MINE, timedelta(0), Next.FIRST),
        (VOID, OTHER, timedelta(days=3), Next.FIRST),  # a corrected request, under another key
        *[(state, OTHER, timedelta(0), Next.MISMATCH) for state in CallState if state is not VOID],
    ],
)
def test_next_for(state: CallState, digest: bytes, age: timedelta, step: Next) -> None:
    known = KnownCall(state=state, digest=digest, age=age)
    assert next_for(known, digest=MINE, lifetime=DAY, margin=MARGIN) is step


@pytest.mark.parametrize(
    ("state", "digest", "age", "step"),
    [
        # It may be on its way: within the lifetime the key makes another harmless.
        (
            OPEN,
            MINE,
            timedelta(0),
            Next.ASK,
        ),
        (UNKNOWN, MINE, timedelta(0), Next.ASK),
        (OPEN, MINE, DAY, Next.ASK),  # before a person must
        (REFUSED, MINE, timedelta(0), Next.AGAIN),
        (SUCCEEDED, MINE, DAY, Next.REPLAY),
        (HELD, MINE, timedelta(0), Next.HOLD),  # a person has begun
        (VOID, MINE, timedelta(0), Next.FIRST),
        (GIVEN_UP, MINE, timedelta(0), Next.STOP),
        (OPEN, b"another", timedelta(0), Next.MISMATCH),
    ],
)
def test_who_is_asked_about(state: CallState, digest: bytes, age: timedelta, step: Next) -> None:
    known = KnownCall(state=state, digest=digest, age=age)
    assert next_for(known, digest=MINE, lifetime=DAY, margin=MARGIN, asks=True) is step


def test_a_new_name() -> None:
    assert next_for(None, digest=MINE, lifetime=DAY, margin=MARGIN) is Next.FIRST
