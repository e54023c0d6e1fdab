"""The journeys, in order.

Each step sends real requests and reports what was promised and what was seen.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from testproject.payments.network import UNLUCKY

from .client import TIMEOUT, Client
from .rows import NO_ANSWER, Answer, Promise, Row

PRICE, OTHER_PRICE = 2499, 9900
AT_ONCE = 20

NEW, REPLAYED, BUSY = "201", "201 replayed", "409 in-progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Players:
    alice: Client
    bob: Client
    #: A user that sees the effects of all users.
    admin: Client
    #: Seconds after which a dead worker's key may be taken over.
    claim_lease: float


def journeys(players: Players) -> Iterator[Row]:
    """Run everything, and yield a row for each step."""
    watched = _Watched(players.admin)
    yield from _charges(players, watched)
    yield from _elsewhere(players.alice, watched)


def _charges(players: Players, watched: _Watched) -> Iterator[Row]:
    alice, bob = players.alice, players.bob

    # One key, one charge.
    first, effects = watched(lambda: alice.charge(PRICE, key="order-1"))
    yield _row(
        "first", "alice: order-1, 24.99", Promise(answers=(NEW,), effects=(1,)), [first], effects
    )

    retry, effects = watched(lambda: alice.charge(PRICE, key="order-1"))
    said = _unequal(first, retry)
    yield _row(
        "retry", "the same again", Promise(answers=(REPLAYED,)), [retry], effects, complaints=said
    )

    changed, effects = watched(lambda: alice.charge(OTHER_PRICE, key="order-1"))
    promise = Promise(answers=("422 request-mismatch",))
    yield _row("changed body", "alice: order-1, 99.00", promise, [changed], effects)

    # Many requests at once, while the card network takes its time.
    answers, effects = watched(
        lambda: _at_once(lambda: alice.charge(PRICE, key="order-2", card="tok_slow"))
    )
    answers.sort(key=lambda answer: answer.label)
    promise = Promise(answers=(NEW,), besides=(REPLAYED, BUSY), effects=(1,))
    yield _row(
        f"{AT_ONCE} at once",
        f"alice: order-2, {AT_ONCE} x\na card that takes 2 s",
        promise,
        answers,
        effects,
    )

    patient, effects = watched(
        lambda: _at_once(lambda: _patiently(alice, key="order-2", card="tok_slow")[-1])
    )
    said = _unequal(*answers[:1], *patient)  # the label of the one that did the work sorts first
    promise = Promise(answers=(REPLAYED,) * AT_ONCE)
    yield _row(
        "and once more", f"the same {AT_ONCE} again", promise, patient, effects, complaints=said
    )

    # The worker is killed between its first write and its response: `kill -9`, from inside.
    killed, effects = watched(lambda: alice.charge(PRICE, key="order-3", card="tok_kill_once"))
    began = time.monotonic()
    promise = Promise(answers=(NO_ANSWER,))
    yield _row(
        "killed worker", "alice: order-3, 24.99\nkilled after its write", promise, [killed], effects
    )

    takeover, effects = watched(lambda: _patiently(alice, key="order-3", card="tok_kill_once"))
    took = f"after {time.monotonic() - began:.1f} s"
    promise = Promise(answers=(NEW,), besides=(BUSY,), effects=(2,))
    said = _impatient(takeover, players.claim_lease)
    yield _row(
        "takeover", "the same again", promise, takeover, effects, remark=took, complaints=said
    )

    # Invalid keys.
    missing, effects = watched(lambda: alice.charge(PRICE, key=None))
    yield _row(
        "missing key",
        "alice: no key, 24.99",
        Promise(answers=("400 key-missing",)),
        [missing],
        effects,
    )

    malformed, effects = watched(lambda: alice.charge(PRICE, key='"order-4'))
    promise = Promise(answers=("400 key-malformed",))
    yield _row("malformed key", 'alice: "order-4, 24.99', promise, [malformed], effects)

    # Whose key?
    others, effects = watched(lambda: bob.charge(OTHER_PRICE, key="order-1"))
    said = ("bob saw alice's answer",) if others.body == first.body else ()
    promise = Promise(answers=(NEW,), effects=(1,))
    yield _row("other user", "bob: order-1, 99.00", promise, [others], effects, complaints=said)

    still, effects = watched(lambda: alice.charge(PRICE, key="order-1"))
    said = _unequal(first, still)
    yield _row(
        "and alice",
        "alice: order-1, 24.99",
        Promise(answers=(REPLAYED,)),
        [still],
        effects,
        complaints=said,
    )


def _elsewhere(alice: Client, watched: _Watched) -> Iterator[Row]:
    # A bank over HTTP. The worker is killed when the bank has sent the money, and before anybody
    # knows.
    lost, effects = watched(lambda: alice.transfer(UNLUCKY, key="order-5"))
    promise = Promise(answers=(NO_ANSWER,), effects=(1,))
    yield _row(
        "bank, killed", "alice: order-5 to a bank\nkilled after it paid", promise, [lost], effects
    )

    paid, effects = watched(lambda: _until_done(lambda: alice.transfer(UNLUCKY, key="order-5")))
    promise = Promise(answers=(NEW,), besides=(BUSY,))
    yield _row("and once more", "the same again", promise, paid, effects)

    # An agent whose stream breaks after the charge must call its tool again, under another id.
    broken, effects = watched(lambda: alice.call_tool(PRICE, key="order-6", call=1, breaks=True))
    promise = Promise(answers=(NO_ANSWER,), effects=(1,))
    yield _row(
        "agent's tool",
        "alice's agent: order-6, 24.99\nits stream breaks",
        promise,
        [broken],
        effects,
    )

    again, effects = watched(lambda: alice.call_tool(PRICE, key="order-6", call=2))
    said = () if json.loads(again.body)["id"] == 2 else ("the result of another call",)
    promise = Promise(answers=("200 replayed",))
    yield _row("and once more", "the same, as call 2", promise, [again], effects, complaints=said)


class _Watched:
    """Makes a call, and returns with its response the attempt numbers of the effects that it
    left.
    """

    def __init__(self, admin: Client) -> None:
        self._admin = admin
        self._known: set[int] = set()

    def __call__(self, call: Callable[[], Any]) -> tuple[Any, tuple[int, ...]]:
        answer = call()
        new = [
            effect for effect in self._admin.get("/api/effects/") if effect["id"] not in self._known
        ]
        self._known |= {effect["id"] for effect in new}
        return answer, tuple(sorted(effect["attempt"] for effect in new))


def _row(
    journey: str,
    sent: str,
    promise: Promise,
    answers: list[Answer],
    effects: tuple[int, ...],
    *,
    remark: str = "",
    complaints: tuple[str, ...] = (),
) -> Row:
    return Row(
        journey=journey,
        sent=sent,
        promise=promise,
        answers=tuple(answer.label for answer in answers),
        effects=effects,
        remark=remark,
        complaints=complaints,
    )


def _unequal(first: Answer, *others: Answer) -> tuple[str, ...]:
    return (
        ()
        if all(other.body == first.body for other in others)
        else ("other bytes than the first answer",)
    )


def _impatient(answers: list[Answer], claim_lease: float) -> tuple[str, ...]:
    """Check how long a takeover made us wait.

    The requested wait does not depend on the speed of this machine.
    """
    asked = sum(answer.retry_after or 0 for answer in answers)
    # One more second for the row lock of the dead worker to go.
    allowed = math.ceil(claim_lease) + 1
    return (f"asked to wait {asked} s",) if asked > allowed else ()


def _at_once(send: Callable[[], Answer]) -> list[Answer]:
    """Send from a number of threads that start together."""
    line = threading.Barrier(AT_ONCE)

    def run() -> Answer:
        line.wait(timeout=TIMEOUT)
        return send()

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return [future.result() for future in [pool.submit(run) for _ in range(AT_ONCE)]]


def _patiently(client: Client, *, key: str, card: str) -> list[Answer]:
    """See _until_done(), for a charge."""
    return _until_done(lambda: client.charge(PRICE, key=key, card=card))


def _until_done(send: Callable[[], Answer]) -> list[Answer]:
    """Send until the response is not a 409, waiting as long as each one asks for.

    Return all responses.
    """
    answers: list[Answer] = []
    deadline = time.monotonic() + TIMEOUT
    while True:
        answer = send()
        answers.append(answer)
        if answer.status != 409 or time.monotonic() > deadline:
            return answers
        time.sleep(answer.retry_after or 1)
