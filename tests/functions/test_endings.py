"""Exceptions: which free the key, which are remembered, and which leave the key to the lease."""

from __future__ import annotations

import asyncio
import threading
import time
import types
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured

from django_idempotency import idempotent_function
from django_idempotency.core.failures import failure_of
from django_idempotency.core.interventions import released
from django_idempotency.errors import (
    DeadlinePassed,
    HeldForPerson,
    InProgress,
    OperationHeld,
    ResponseNotStored,
    StoreUnavailable,
)
from django_idempotency.functions.takeovers import Takeover

from .helpers import CardDeclined, Clock, NetworkDown, Runs, of

pytestmark = pytest.mark.usefixtures("memory")


class ThreeDSecureFailed(CardDeclined):
    pass


def failing(*errors: BaseException) -> Runs:
    """Raise these one after the other, then return."""
    left = list(errors)

    def work(*_: Any) -> str:
        if left:
            raise left.pop(0)
        return "done"

    return Runs(work)


def test_an_exception_frees_the_key() -> None:
    """An exception frees the key, and the next call runs as the next attempt."""
    work = failing(NetworkDown("network"))
    charge = idempotent_function(key_prefix="charge")(of(work))
    with pytest.raises(NetworkDown, match="network"):
        charge(1)
    assert [charge(1), charge(1)] == ["done", "done"]
    assert work.attempts == [1, 2]


def test_a_failure_is_noted() -> None:
    """The record of a failed call names the exception's class; its handle finds no result."""
    charge = idempotent_function(key_prefix="charge")(of(failing(NetworkDown("declined: secret"))))
    with pytest.raises(NetworkDown):
        charge(1)
    known = charge.idempotency.lookup(1)
    assert known is not None
    failure = failure_of(known.record)
    assert failure is not None
    assert (failure.name, known.state) == ("NetworkDown", "failed")
    assert "declined: secret" not in str(known.record)
    with pytest.raises(InProgress):
        known.result()


def test_an_exception_that_is_held(clock: Clock) -> None:
    """With `on_failure="hold"` the key is busy until the lease ends."""
    work = failing(NetworkDown())
    charge = idempotent_function(on_failure="hold", lease=30, key_prefix="charge")(of(work))
    with pytest.raises(NetworkDown):
        charge(1)
    with pytest.raises(InProgress):
        charge(1)
    clock.go(30)
    assert charge(1) == "done"


def test_a_kept_exception() -> None:
    """A kept exception is raised again with equal type, arguments and attributes; the work does not
    run.
    """
    work = failing(CardDeclined("no money", 51))
    charge = idempotent_function(keep_exceptions=(CardDeclined,), key_prefix="charge")(of(work))
    for _ in range(3):
        with pytest.raises(CardDeclined, match="declined: no money") as caught:
            charge(1)
        assert type(caught.value) is CardDeclined
        assert (caught.value.reason, caught.value.code) == ("no money", 51)
    assert work.count == 1


def test_a_kept_exception_by_its_base() -> None:
    """Only the named class is rebuilt."""
    work = failing(ThreeDSecureFailed("frozen", 3))
    charge = idempotent_function(keep_exceptions=CardDeclined, key_prefix="charge")(of(work))
    with pytest.raises(ThreeDSecureFailed):
        charge(1)
    with pytest.raises(CardDeclined) as caught:
        charge(1)
    assert type(caught.value) is CardDeclined
    assert caught.value.code == 3


def test_an_error_of_ours_is_not_a_result() -> None:
    """That another call runs, or that the store was away, is not remembered as this call's
    result.
    """
    waiting = (InProgress, StoreUnavailable, DeadlinePassed)
    charge = idempotent_function(keep_exceptions=Exception, key_prefix="charge")(
        of(failing(*(error() for error in waiting)))
    )
    for error in waiting:
        with pytest.raises(error):
            charge(1)
    assert charge(1) == "done"


def test_an_error_of_ours_that_is_named() -> None:
    """If it is named in `keep_exceptions`, it is remembered like any other exception."""
    work = failing(HeldForPerson())
    charge = idempotent_function(
        keep_exceptions=(CardDeclined, HeldForPerson), key_prefix="charge"
    )(of(work))
    for _ in range(2):
        with pytest.raises(HeldForPerson):
            charge(1)
    assert work.count == 1


def test_a_kept_exception_that_cannot_be_stored() -> None:
    """The first caller gets it; the work is not run again."""
    declined = CardDeclined("no", 1)
    declined.socket = object()  # type: ignore[attr-defined]
    work = failing(declined)
    charge = idempotent_function(keep_exceptions=CardDeclined, key_prefix="charge")(of(work))
    with pytest.raises(CardDeclined):
        charge(1)
    with pytest.raises(ResponseNotStored):
        charge(1)
    assert work.count == 1


@pytest.mark.parametrize(
    "cut", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]
)
def test_what_is_not_an_exception(cut: BaseException, clock: Clock) -> None:
    """It is unknown what still runs, so the key is not released; after the lease the next call
    takes over.
    """
    work = failing(cut)
    charge = idempotent_function(lease=30, key_prefix="charge")(of(work))
    with pytest.raises(type(cut)):
        charge(1)
    with pytest.raises(InProgress):
        charge(1)
    clock.go(30)
    assert charge(1) == "done"
    assert work.attempts == [1, 2]


def test_cancellation(clock: Clock) -> None:
    """A cancelled coroutine ends in the same way; its record is left to the lease."""

    async def main() -> None:
        started = asyncio.Event()
        runs = []

        @idempotent_function(lease=30, key_prefix="charge")
        async def charge(order: int) -> str:
            runs.append(order)
            started.set()
            if len(runs) == 1:
                await asyncio.sleep(60)
            return "done"

        task = asyncio.ensure_future(charge(1))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(InProgress):
            await charge(1)
        clock.go(30)
        assert await charge(1) == "done"
        assert await charge(1) == "done"
        assert runs == [1, 1]

    async_to_sync(main)()


def test_cancellation_of_a_call_that_waits() -> None:
    """A cancelled waiting call ends at once, not at the end of the wait."""

    async def main() -> None:
        started, end = asyncio.Event(), asyncio.Event()

        @idempotent_function(wait=600, key_prefix="charge")
        async def charge(order: int) -> str:
            started.set()
            await end.wait()
            return "done"

        first = asyncio.ensure_future(charge(1))
        await started.wait()
        waiting = asyncio.ensure_future(charge(1))
        await asyncio.sleep(0.01)
        waiting.cancel()
        done, _ = await asyncio.wait([waiting], timeout=20)
        end.set()
        assert done
        assert waiting.cancelled()
        assert await first == "done"

    async_to_sync(main)()


async def cancelled_while_it_claims(
    charge: Any, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = memory.claim
    claiming = threading.Event()
    cancelled = threading.Event()

    def slow(ticket: Any) -> Any:
        claiming.set()
        assert cancelled.wait(20)
        return claim(ticket)

    monkeypatch.setattr(memory, "claim", slow)
    task = asyncio.ensure_future(charge(1))
    assert await asyncio.to_thread(claiming.wait, 20)
    task.cancel()
    await asyncio.sleep(0)
    cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancellation_of_a_claim(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim is finished and the key freed; a crashed owner's record is left for
    `on_takeover`.
    """
    work = Runs(lambda _: "done")

    @idempotent_function(lease=30, key_prefix="charge")
    async def charge(order: int) -> Any:
        return work(order)

    with monkeypatch.context() as patch:
        async_to_sync(cancelled_while_it_claims)(charge, memory, patch)
    known = charge.idempotency.lookup(1)
    assert known is not None
    assert known.state == "failed"
    assert async_to_sync(charge)(1) == "done"
    assert work.attempts == [2]


def test_cancellation_of_a_takeover(
    memory: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook was not asked about the crashed owner, so the next call asks it."""

    async def main() -> None:
        asked = Runs(lambda takeover: takeover.found("it was done"))
        work = failing(SystemExit())

        @idempotent_function(lease=30, on_takeover=asked, key_prefix="charge")
        async def charge(order: int) -> Any:
            return work(order)

        with pytest.raises(SystemExit):
            await charge(1)
        clock.go(30)

        with monkeypatch.context() as patch:
            await cancelled_while_it_claims(charge, memory, patch)
        clock.go(30)
        assert await charge(1) == "it was done"
        assert (asked.count, work.count) == (1, 1)

    async_to_sync(main)()


# ---------------------------------------------------------------------------------------- takeovers


def crashed(clock: Clock, **given: Any) -> tuple[Any, Runs]:
    """Return a function whose first call crashed, and its runs."""
    work = failing(SystemExit())
    charge = idempotent_function(lease=30, **given, key_prefix="charge")(of(work))
    with pytest.raises(SystemExit):
        charge(1)
    clock.go(30)
    return charge, work


def test_on_takeover_finds_the_result(clock: Clock) -> None:
    """A result known from the provider is remembered and returned; nothing runs."""
    asked: list[Any] = []

    def ask(takeover: Takeover) -> Any:
        asked.append(
            (takeover.attempt, takeover.payload, takeover.derive("charge"), takeover.record.attempt)
        )
        return takeover.found({"id": "ch_1"})

    charge, work = crashed(clock, on_takeover=ask)
    assert [charge(1), charge(1)] == [{"id": "ch_1"}] * 2
    assert work.count == 1
    (said,) = asked
    assert said[:2] == (2, {"order": 1})
    assert len(said[2]) == 64


def test_on_takeover_runs(clock: Clock) -> None:
    """The hook is called only for takeovers."""
    asked = Runs(lambda takeover: takeover.run())
    charge, work = crashed(clock, on_takeover=asked)
    assert [charge(1), charge(1), charge(2)] == ["done"] * 3
    assert (asked.count, work.attempts) == (1, [1, 2, 1])


def test_on_takeover_holds(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """A held call does not run, however long it takes, until a person has released the record."""
    charge, work = crashed(clock, on_takeover=lambda takeover: takeover.hold())
    for _ in range(3):
        with pytest.raises(HeldForPerson):
            charge(1)
        clock.go(86400 * 30)
    assert "waits for a person" in caplog.text
    assert charge.idempotency.lookup(1).state == "held"
    assert work.count == 1

    from django_idempotency.runtime.registry import stores

    known = charge.idempotency.lookup(1)
    stores["default"].change(known.record.id, released, audit=lambda record: None)
    assert charge(1) == "done"
    assert work.count == 2


@pytest.mark.parametrize(
    "broken", [lambda takeover: None, lambda takeover: 1 / 0], ids=["nothing", "an error"]
)
def test_on_takeover_that_does_not_know(clock: Clock, broken: Any) -> None:
    """If the hook fails, the call does not run, and the next one asks again when the lease is
    over.
    """
    answers = [broken, lambda takeover: takeover.found("it was done")]
    charge, work = crashed(
        clock,
        # A different one each time.
        on_takeover=lambda takeover: answers.pop(0)(takeover),  # noqa: PLW0108
    )
    with pytest.raises(Exception, match=r"on_takeover|division"):
        charge(1)
    with pytest.raises(InProgress):
        charge(1)
    clock.go(30)
    assert charge(1) == "it was done"
    assert work.count == 1


def test_on_takeover_sets_the_retention(clock: Clock) -> None:
    """A ttl that the hook sets counts for the result that it found, but not for a run's."""

    def ask(takeover: Takeover) -> Any:
        takeover.ttl = 5
        return takeover.found("it was done") if takeover.payload == {"order": 1} else takeover.run()

    charge, _ = crashed(clock, on_takeover=ask)
    assert charge(1) == "it was done"
    clock.go(5)
    assert charge.idempotency.lookup(1) is None
    work = failing(SystemExit())
    charge = idempotent_function(lease=30, on_takeover=ask, key_prefix="charge")(of(work))
    with pytest.raises(SystemExit):
        charge(2)
    clock.go(30)
    assert charge(2) == "done"
    clock.go(5)
    assert charge(2) == "done"
    assert work.count == 2


def test_on_takeover_finds_a_refusal(clock: Clock) -> None:
    """A kept exception that the hook raises is remembered, as if the call had raised it."""

    def ask(takeover: Takeover) -> Any:
        raise CardDeclined("no money", 51)

    charge, work = crashed(clock, on_takeover=ask, keep_exceptions=CardDeclined)
    for _ in range(2):
        with pytest.raises(CardDeclined):
            charge(1)
    assert work.count == 1


def test_on_takeover_of_a_coroutine_function(clock: Clock) -> None:
    """The hook of a coroutine function may be a coroutine function."""

    async def ask(takeover: Takeover) -> Any:
        await asyncio.sleep(0)
        return takeover.found("it was done")

    work = failing(SystemExit())

    @idempotent_function(lease=30, on_takeover=ask, key_prefix="charge")
    async def charge(order: int) -> Any:
        return work(order)

    with pytest.raises(SystemExit):
        async_to_sync(charge)(1)
    clock.go(30)
    assert async_to_sync(charge)(1) == "it was done"
    assert work.count == 1


@pytest.mark.parametrize("asks_async", [False, True])
def test_on_takeover_is_held_by_what_it_calls(clock: Clock, asks_async: bool) -> None:
    """A hold that reaches the caller is the functions' own exception, in async calls as in
    others.
    """

    def ask(takeover: Takeover) -> Any:
        raise OperationHeld("look into it")

    work = failing(SystemExit())

    async def acharge(order: int) -> Any:
        return work(order)

    guard = idempotent_function(lease=30, on_takeover=ask, key_prefix="charge")
    charge: Any = async_to_sync(guard(acharge)) if asks_async else guard(of(work))
    with pytest.raises(SystemExit):
        charge(1)
    clock.go(30)
    with pytest.raises(HeldForPerson, match="look into it"):
        charge(1)


def test_a_coroutine_that_is_closed_while_on_takeover_decides(clock: Clock) -> None:
    """What it decides in its thread counts, although nobody hears of it."""
    asked = threading.Event()
    decided = threading.Event()

    def ask(takeover: Takeover) -> Any:
        asked.set()
        assert decided.wait(20)
        return takeover.found("it was done")

    work = failing(SystemExit())

    @idempotent_function(lease=30, on_takeover=ask, key_prefix="charge")
    async def charge(order: int) -> Any:
        return work(order)

    async def close_in_the_middle() -> None:
        call: Any = charge(1)
        while not asked.is_set():
            call.send(None)
            await asyncio.sleep(0.01)
        call.close()
        decided.set()

    with pytest.raises(SystemExit):
        async_to_sync(charge)(1)
    clock.go(30)
    asyncio.run(close_in_the_middle())
    for _ in range(500):  # its thread may still settle
        with suppress(InProgress):
            assert async_to_sync(charge)(1) == "it was done"
            break
        time.sleep(0.01)
    else:
        pytest.fail("It was not settled.")
    assert work.count == 1


def awaiting(call: Any) -> Any:
    """Return what a coroutine awaits in the end."""
    while isinstance(call, types.CoroutineType):
        call = call.cr_await
    return call


@pytest.mark.parametrize(
    ("hook", "function", "of"),
    [
        ("on_replay", lambda result: result, "result and record"),
        ("on_takeover", lambda: None, "takeover"),
    ],
)
def test_a_hook_that_would_fail_at_each_call(hook: str, function: Any, of: str) -> None:
    """A function that cannot be called as it will be is refused where it is declared."""
    with pytest.raises(ImproperlyConfigured, match=f"{hook} is a function of {of}"):
        idempotent_function(lease=30, **{hook: function}, key_prefix="charge")(
            lambda *, amount: amount
        )
