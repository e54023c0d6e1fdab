"""A guarded function, sync and async, runs once and always returns its result."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from math import inf
from typing import Any, ClassVar

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.utils.decorators import method_decorator
from jmespath import Options
from jmespath.functions import signature

from django_idempotency import LongestRun, idempotent_function
from django_idempotency.contrib.batches.messages import DeadLetter, disposition
from django_idempotency.core.canonical import digest
from django_idempotency.core.expressions import Expression, Functions
from django_idempotency.errors import (
    CalledItself,
    ConfigurationError,
    DeadlinePassed,
    InProgress,
    KeyMissing,
    RequestMismatch,
    ResponseNotStored,
    StoreUnavailable,
    UnhashablePayload,
)
from django_idempotency.functions import current_operation, deadline
from django_idempotency.runtime import switch
from django_idempotency.runtime.registry import stores
from django_idempotency.signals import unavailable
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing import override_idempotency
from django_idempotency.testing.recording import RecordingStore

from .helpers import LEASES, Clock, NetworkDown, Runs, of

pytestmark = pytest.mark.usefixtures("memory")


@pytest.mark.parametrize(
    "result", [None, 0, "", [], False, b"", {}, 0.0, (), {"id": 1}, [1, (2, {3})]], ids=repr
)
def test_once(guard: Any, result: Any) -> None:
    """The work runs once, and every call returns its result, with the same type and value."""
    work = Runs(lambda *_: result)
    charge = guard(work)
    answers = [charge(1) for _ in range(3)]
    assert answers == [result] * 3
    assert {type(answer) for answer in answers} == {type(result)}
    assert work.count == 1


def test_the_whole_payload_is_the_key(guard: Any) -> None:
    """Without an expression, any difference makes another call."""
    work = Runs()
    charge = guard(work)
    for order, amount in ((1, 5), (1, 6), ("1", 5), (True, 5), (1, None), (None, None)):
        charge(order, amount)
        charge(amount=amount, order=order)
    assert work.count == 6


def test_a_selected_key(guard: Any) -> None:
    """What is not selected may change."""
    work = Runs(lambda order, amount: amount)
    charge = guard(work, key="order.id")
    assert [charge({"id": 1, "at": 1}, 5), charge({"id": 1, "at": 2}, 6), charge({"id": 2}, 7)] == [
        5,
        5,
        7,
    ]


def test_a_callable_key_and_the_one_argument(guard: Any) -> None:
    """A callable gets the payload: the arguments by name, or the one that is named."""
    work = Runs()
    guarded = guard(work, key=lambda payload: payload["order"] + 1)
    guarded(1, 5)
    guarded(1, 6)
    guarded = guard(work, key=lambda order: order["id"], data_keyword_argument="order")
    guarded({"id": 1, "x": 1})
    guarded(order={"id": 1, "x": 2})
    assert work.calls == [(1, 5), ({"id": 1, "x": 1}, 0)]


def test_what_must_not_change(guard: Any) -> None:
    """Another amount for a known key is refused, also while the first call runs; the first one is
    still replayed.
    """
    refused: list[int] = []

    def work(order: Any, amount: int) -> int:
        with pytest.raises(RequestMismatch):
            charge(1, 9)
        refused.append(amount)
        return amount

    # A sync function cannot call an async one from within its own loop.
    charge = idempotent_function(key="order", validate="amount", key_prefix="work")(work)
    assert charge(1, 5) == 5
    assert refused == [5]

    later = guard(Runs(lambda order, amount: amount), key="order", validate="amount")
    assert later(1, 5) == 5
    with pytest.raises(RequestMismatch):
        later(1, 6)
    assert later(1, 5) == 5


def test_two_functions_do_not_mix(guard: Any) -> None:
    """Function names are part of the key; a prefix replaces the name, so functions can be
    renamed.
    """
    one, two, three = Runs(lambda *_: 1), Runs(lambda *_: 2), Runs(lambda *_: 3)
    assert guard(one, key_prefix="one")(1) == 1
    assert guard(two, key_prefix="two")(1) == 2
    assert guard(three, key_prefix="one")(1) == 1


@pytest.mark.parametrize(
    "order", [None, {}, {"id": None}, {"id": ""}, {"id": []}, {"id": 1, "part": None}]
)
def test_a_missing_key(guard: Any, order: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A call with a missing or partly missing key runs unguarded, with one warning, and without a
    trip to the store.
    """
    stores._built["default"] = recording = RecordingStore(stores["default"])
    work = Runs(lambda *_: None)
    key = "order.[id, part]" if order and "part" in order else "order.id"
    charge = guard(work, key=key)
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        charge(order)
        charge(order)
    assert work.count == 2
    assert work.attempts == []
    assert recording.verbs == []
    assert [record.getMessage().count("unguarded") for record in caplog.records] == [1, 1]
    with pytest.raises(KeyMissing):
        guard(work, key=key, required=True)(order)
    assert work.count == 2


@pytest.mark.parametrize("order", [0, 0.0, False])
def test_falsy_keys_are_keys(guard: Any, order: Any) -> None:
    """Zero is also an order number."""
    work = Runs()
    charge = guard(work, key="order")
    charge(order)
    charge(order)
    assert work.count == 1


def test_what_cannot_be_hashed(guard: Any) -> None:
    """The error names the value, and nothing has run."""
    work = Runs()
    with pytest.raises(UnhashablePayload, match="order"):
        guard(work)(object())
    assert work.count == 0


def test_trips(guard: Any) -> None:
    """A first call takes two trips, a replay one."""
    stores._built["default"] = recording = RecordingStore(stores["default"])
    charge = guard(Runs())
    charge(1)
    assert [verb for verb in recording.verbs if verb != "guard"] == ["claim", "settle"]
    recording.verbs.clear()
    charge(1)
    assert recording.verbs == ["claim"]


def test_expiry(guard: Any, clock: Clock) -> None:
    """After `expires_after` the same key is a new call."""
    work = Runs()
    charge = guard(work, expires_after=60, lease=10)
    charge(1)
    clock.go(59)
    charge(1)
    assert work.count == 1
    clock.go(1)
    charge(1)
    assert (work.count, work.attempts) == (2, [1, 1])


def test_a_ttl_of_its_own(guard: Any, clock: Clock) -> None:
    """A call can set how long its result is remembered."""

    def briefly(*_: Any) -> None:
        current = current_operation()
        assert current is not None
        current.ttl = 5

    work = Runs(briefly)
    charge = guard(work)
    charge(1)
    clock.go(6)
    charge(1)
    assert work.count == 2


def test_the_current_operation(guard: Any) -> None:
    """Inside the call there are key, attempt and derived keys; outside there is no operation."""
    seen = []

    def work(*_: Any) -> None:
        current = current_operation()
        assert current is not None
        seen.append((current.key, current.attempt, current.derive("charge"), current.lost))
        if len(seen) == 1:
            raise NetworkDown

    charge = guard(work)
    with pytest.raises(NetworkDown):
        charge(1)
    charge(1)
    key = charge.idempotency.key_for(1)
    derived = seen[0][2]
    assert seen == [(key, 1, derived, False), (key, 2, derived, False)]
    assert current_operation() is None


def test_nested_calls(guard: Any) -> None:
    """Each call has its own operation; afterwards the outer one is current again."""
    keys: list[str] = []

    @idempotent_function(key_prefix="inner")
    def inner(order: int) -> None:
        current = current_operation()
        assert current is not None
        keys.append(current.key)

    def work(order: int, *_: Any) -> None:
        for _attempt in range(2):
            inner(order)
            current = current_operation()
            assert current is not None
            keys.append(current.key)

    outer = guard(work)
    outer(1)
    mine = outer.idempotency.key_for(1)
    assert keys == [inner.idempotency.key_for(1), mine, mine]


def test_an_unguarded_call_inside_another(guard: Any) -> None:
    """An unguarded call derives no keys: two such calls would send the outer call's keys to the
    provider.
    """
    seen: list[Any] = []
    inner = guard(lambda *_: seen.append(current_operation()), key="order")

    @idempotent_function(key="order", key_prefix="outer")
    def outer(order: int) -> None:
        inner(None)
        seen.append(current_operation())

    outer(1)
    assert seen[0] is None
    assert seen[1] is not None


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_inside_itself(is_async: bool, clock: Clock) -> None:
    """A call inside itself would wait for its own end: refused at once, even after its lease; its
    message is dead.
    """
    terms: dict[str, Any] = {
        "key": "order",
        "key_prefix": "charge",
        "wait": 60,
        "lease": 30,
    }

    @idempotent_function(**terms)
    def charge(order: int) -> str:
        with pytest.raises(CalledItself):
            charge(order)
        clock.now += timedelta(seconds=100)
        return charge(order)

    @idempotent_function(**terms)
    async def acharge(order: int) -> str:
        with pytest.raises(CalledItself):
            await asyncio.create_task(acharge(order))
        clock.now += timedelta(seconds=100)
        return await acharge(order)

    with pytest.raises(CalledItself) as caught:
        async_to_sync(acharge)(1) if is_async else charge(1)
    assert (caught.value.scope, caught.value.key) == ("call:charge", charge.idempotency.key_for(1))
    assert disposition(caught.value) == DeadLetter()


def test_an_error_names_the_record(guard: Any) -> None:
    """An error has the scope and key for developers; its message, which a client may read, has
    neither.
    """
    charge = idempotent_function(key="order", validate="amount", key_prefix="charge")(
        lambda order, amount: None
    )
    charge(1, amount=5)
    with pytest.raises(RequestMismatch) as caught:
        charge(1, amount=6)
    error = caught.value
    assert (error.scope, error.key) == ("call:charge", charge.idempotency.key_for(1, amount=6))
    known = charge.idempotency.lookup(1, amount=5)
    assert known is not None
    assert known.record.key == error.key
    assert str(error.key) not in str(error)


def test_an_error_of_another_call_names_that_ones(guard: Any) -> None:
    """The error of an inner call names the inner record, even if an outer call raises or stores
    it.
    """
    inner = idempotent_function(key="order", validate="amount", key_prefix="inner")(
        lambda order, amount: None
    )
    inner(1, amount=5)

    @idempotent_function(key="order", key_prefix="outer", keep_exceptions=RequestMismatch)
    def outer(order: int) -> None:
        inner(order, amount=6)

    for _ in range(2):
        with pytest.raises(RequestMismatch) as caught:
            outer(1)
        assert (caught.value.scope, caught.value.key) == (
            "call:inner",
            inner.idempotency.key_for(1, amount=6),
        )


class Ordered(dict[str, Any]):
    """Another class for the objects that an expression builds."""


def test_options_of_jmespath(clock: Clock) -> None:
    """Custom functions and the class of objects are passed as in jmespath itself."""

    class Mine(Functions):
        @signature({"types": ["string"]})
        def _func_small(self, text: str) -> str:
            return text.lower()

    options = Options(custom_functions=Mine(), dict_cls=Ordered)
    plain = Expression("{a: small(name)}", options=options)({"name": "TEA"})
    assert (type(plain), plain) == (Ordered, {"a": "tea"})
    charge = idempotent_function(key="small(order)", key_prefix="charge", jmespath_options=options)(
        lambda order: order
    )
    assert (charge("TEA"), charge("tea")) == ("TEA", "TEA")
    with pytest.raises(ValueError, match="given twice"):
        Expression("order", options=options, functions=Mine)


def test_threads(guard: Any) -> None:
    """Of ten calls at once, one runs for each order; the others are busy, and later get its
    result.
    """
    runs = Runs(lambda order, _: f"receipt {order}")
    charge = guard(runs)

    def insist(order: int) -> Any:
        while True:
            with suppress(InProgress):
                return charge(order)

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(insist, [1, 2] * 20))
    assert answers == ["receipt 1", "receipt 2"] * 20
    assert runs.count == 2


def test_one_thread_waits_for_another(memory: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread waits for another even in a process with few threads, such as a consumer with
    one.
    """
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    runs = Runs(lambda order: order)
    running, asked = threading.Event(), threading.Event()

    @idempotent_function(wait=20, key_prefix="charge")
    def charge(order: int) -> Any:
        running.set()
        assert asked.wait(20)
        return runs(order)

    class Watched(RecordingStore):
        def wait(self, ticket: Any, *, seconds: float) -> None:
            asked.set()

    stores._built["default"] = Watched(memory)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(charge, 1)
        assert running.wait(20)
        assert charge(1) == first.result() == 1
    assert runs.count == 1


def test_tasks() -> None:
    """The same holds for tasks of one loop, without blocking a thread."""

    async def main() -> None:
        runs = 0

        @idempotent_function(wait=20, key_prefix="charge")
        async def charge(order: int) -> int:
            nonlocal runs
            runs += 1
            await asyncio.sleep(0.05)
            return order

        assert await asyncio.gather(*(charge(n % 3) for n in range(30))) == [
            n % 3 for n in range(30)
        ]
        assert runs == 3

    async_to_sync(main)()


def test_a_busy_call_reports_when_to_ask_again(guard: Any, clock: Clock) -> None:
    """The error's retry time is the lease of the running call."""
    charge = guard(Runs(), lease=20)
    ticketed = charge.idempotency.key_for(1)
    _claimed_elsewhere(charge, ticketed, lease=20)
    clock.go(5)
    with pytest.raises(InProgress) as caught:
        charge(1)
    assert caught.value.retry_in == 15


def _claimed_elsewhere(charge: Any, key: str, *, lease: float) -> None:
    from django_idempotency.core.hashing import record_id, request_digest
    from django_idempotency.testing.tickets import make_ticket

    scope = charge.idempotency.scope
    stores["default"].claim(
        make_ticket(
            id=record_id(scope, key),
            scope=scope,
            key=key,
            digest=request_digest(b"call"),
            lease=lease,
            ttl=86400,
        )
    )


def test_a_result_that_cannot_be_stored(guard: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets the result; retries get a typed error; the work is not run again for that
    reason.
    """
    work = Runs(lambda *_: threading.Lock())
    charge = guard(work)
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        assert isinstance(charge(1), type(threading.Lock()))
    assert "not stored" in caplog.text
    for _ in range(2):
        with pytest.raises(ResponseNotStored):
            charge(1)
    assert work.count == 1


def test_a_log_filter_that_fails(guard: Any) -> None:
    """A failing log filter does not make the work run again."""

    def broken(record: logging.LogRecord) -> bool:
        raise ValueError

    work = Runs(lambda *_: object())
    charge = guard(work)
    logger = logging.getLogger("django_idempotency")
    logger.addFilter(broken)
    try:
        charge(1)
    finally:
        logger.removeFilter(broken)
    with pytest.raises(ResponseNotStored):
        charge(1)
    assert work.count == 1


@pytest.mark.parametrize("error", [ValueError("no"), ZeroDivisionError()])
def test_a_serializer_that_fails(guard: Any, error: Exception) -> None:
    """The work is done, so its result is returned, and it does not run again."""

    def dump(value: Any) -> Any:
        raise error

    work = Runs(lambda *_: 1)
    charge = guard(work, serializer=(dump, dump))
    assert charge(1) == 1
    with pytest.raises(ResponseNotStored):
        charge(1)
    assert work.count == 1


def test_a_result_that_is_too_long(guard: Any) -> None:
    """`max_body` limits what is stored."""
    work = Runs(lambda *_: "x" * 200)
    charge = guard(work, max_body=100)
    assert charge(1) == "x" * 200
    with pytest.raises(ResponseNotStored):
        charge(1)
    assert work.count == 1


def test_serializers(guard: Any) -> None:
    """A pair of functions stores values that no annotation describes."""
    charge = guard(
        Runs(lambda *_: complex(1, 2)),
        serializer=(lambda z: [z.real, z.imag], lambda pair: complex(*pair)),
    )
    assert [charge(1), charge(1)] == [complex(1, 2)] * 2


def test_on_replay(guard: Any) -> None:
    """The hook is called only for replays, with result and record; its result or error goes to the
    caller.
    """
    asked: list[Any] = []

    def on_replay(result: Any, record: Any) -> Any:
        asked.append((result, record.attempt))
        return {"replayed": result}

    charge = guard(Runs(lambda *_: None), on_replay=on_replay)
    assert [charge(1), charge(1)] == [None, {"replayed": None}]
    assert asked == [(None, 1)]


def test_what_the_work_does_to_its_payload(guard: Any) -> None:
    """The key is computed once, before the work."""
    work = Runs(lambda order, _: order.clear())
    charge = guard(work)
    charge({"id": 1})
    charge({"id": 1})
    assert work.count == 1


def test_what_a_caller_does_to_its_result(guard: Any) -> None:
    """Each replay returns its own copy of the value."""
    charge = guard(Runs(lambda *_: {"items": [1]}))
    for _ in range(3):
        result = charge(1)
        assert result == {"items": [1]}
        result["items"].append(2)


def test_a_warning_is_no_refusal(guard: Any, settings: Any) -> None:
    """A call without a key runs under `REQUIRED: "warn"`, as it does without the setting."""
    settings.IDEMPOTENCY = {
        **settings.IDEMPOTENCY,
        "REQUIRED": "warn",
        "MODE": "django_idempotency.contrib.observe.OBSERVE",
    }
    work = Runs()
    charge = guard(work, key="order")
    charge(None)
    charge(1)
    charge(1)
    assert work.count == 2  # a function is guarded, whatever MODE says of requests


def test_disabled(guard: Any) -> None:
    """With idempotency off, the function runs as written, without a store."""
    stores._built["default"] = recording = RecordingStore(stores["default"])
    work = Runs()
    charge = guard(work, key="order", required=True)
    with override_idempotency(enabled=False):
        charge(None)
        charge(1)
        charge(1)
    assert (work.count, recording.verbs) == (3, [])
    assert work.attempts == [1, 1, 1]


def test_disabled_by_the_environment(
    guard: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With idempotency off by the environment, the log says so once, however many calls and
    functions there are.
    """
    monkeypatch.setenv(switch.VARIABLE, "1")
    monkeypatch.setattr(switch, "_warned", False)
    stores._built["default"] = recording = RecordingStore(stores["default"])
    work = Runs(lambda order, _: order)
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        for charge in (
            guard(work, key="order", key_prefix="one"),
            guard(work, key="order", key_prefix="two"),
        ):
            assert [charge(1), charge(1), charge.with_key("k")(2)] == [1, 1, 2]
    assert (work.count, recording.verbs) == (6, [])
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "Idempotency is off"
    ]
    monkeypatch.setenv(switch.VARIABLE, "0")
    assert charge.idempotency.lookup(1) is None


def test_derived_keys_while_disabled(guard: Any) -> None:
    """With idempotency off, derived keys depend on the key, but differ from those of any remembered
    run.
    """
    derived = []

    def work(*_: Any) -> None:
        current = current_operation()
        assert current is not None
        derived.append((current.key, current.derive("stripe"), current.lost))

    charge = guard(work, key="order")
    charge(1)
    with override_idempotency(enabled=False):
        charge(1)
        charge(1)
        charge(None)
        charge(None)
    assert derived[1] == derived[2]
    assert len(set(derived)) == 4


@pytest.mark.parametrize(
    ("terms", "settings", "seconds"),
    [
        ({}, {}, inf),
        ({"extensions": [LongestRun(timedelta(minutes=10))]}, {}, 600),
        ({}, {"EXTENSIONS": [LongestRun(600)]}, 600),
        ({"extensions": [LongestRun(None)]}, {"EXTENSIONS": [LongestRun(600)]}, inf),
    ],
)
def test_a_longest_run(
    guard: Any, terms: dict[str, Any], settings: dict[str, Any], seconds: float
) -> None:
    """It is that of the policy, or else of the settings; a call knows it before it claims its
    key.
    """
    found: list[float] = []

    def work(*_: Any) -> None:
        current: Any = current_operation()
        found.append(current._operation.ticket.longest_run)

    with override_settings(IDEMPOTENCY={**LEASES, **settings}):
        guard(work, **terms)(1)
    assert found == [seconds]


def test_a_deadline(guard: Any, clock: Clock) -> None:
    """The lease lasts as long as the host; no call begins after the deadline."""
    charge = guard(work := Runs(), lease=600)
    with deadline(3), pytest.raises(RuntimeError):
        guard(_raise_after_noting(clock), lease=600, on_failure="hold")(1)
    with deadline(0), pytest.raises(DeadlinePassed):
        charge(1)
    assert work.count == 0


def test_a_deadline_that_passes_while_the_store_is_asked(
    guard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call begins after the deadline, and the key is free."""
    stores._built["default"] = recording = RecordingStore(stores["default"])
    monkeypatch.setattr(
        "django_idempotency.engine.deadlines.remaining", lambda: 0.0 if recording.verbs else 5.0
    )
    charge = guard(work := Runs())
    with deadline(60), pytest.raises(DeadlinePassed):
        charge(1)
    assert work.count == 0
    assert charge.idempotency.lookup(1).state == "failed"


def _raise_after_noting(clock: Clock) -> Any:
    def work(*_: Any) -> None:
        (record,) = stores["default"]._records.values()  # type: ignore[attr-defined]
        assert 2 < (record.lease_until - clock.now).total_seconds() <= 3
        raise RuntimeError

    return work


@pytest.mark.parametrize("policy", ["closed", "open"])
def test_without_a_store(guard: Any, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed: a typed error, and nothing has run. Open: the call runs, as attempt 0."""

    def unreachable(*_: Any) -> Any:
        raise StoreUnavailable

    monkeypatch.setattr(stores["default"], "claim", unreachable)
    work = Runs(lambda *_: "done")
    charge = guard(work, on_store_failure=policy)
    if policy == "closed":
        with pytest.raises(StoreUnavailable):
            charge(1)
        assert work.count == 0
    else:
        assert charge(1) == "done"
        assert work.attempts == [0]


def test_a_deadline_that_passes_while_the_store_fails(
    guard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With on_store_failure="open", too, no call begins after the deadline."""
    failed: list[bool] = []

    def unreachable(*_: Any) -> Any:
        failed.append(True)
        raise StoreUnavailable

    monkeypatch.setattr(stores["default"], "claim", unreachable)
    monkeypatch.setattr(
        "django_idempotency.engine.deadlines.remaining", lambda: 0.0 if failed else 5.0
    )
    work = Runs(lambda *_: "done")
    with deadline(60), pytest.raises(DeadlinePassed):
        guard(work, on_store_failure="open")(1)
    assert work.count == 0


def test_an_async_receiver_hears_that_the_store_is_gone(
    guard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver is called, and changes nothing."""

    def unreachable(*_: Any) -> Any:
        raise StoreUnavailable

    heard: list[str] = []

    async def receiver(**named: Any) -> None:
        heard.append(type(named["error"]).__name__)

    monkeypatch.setattr(stores["default"], "claim", unreachable)
    unavailable.connect(receiver)
    try:
        assert guard(lambda *_: "done", on_store_failure="open")(1) == "done"
    finally:
        unavailable.disconnect(receiver)
    assert heard == ["StoreUnavailable"]


def test_an_explicit_key(guard: Any) -> None:
    """An explicit key replaces the selected one, even if that is missing."""
    work = Runs(lambda order, _: order)
    charge = guard(work, key="order.id")
    assert [charge.with_key("k")(1), charge.with_key("k")(2), charge.with_key("l")(3)] == [1, 1, 3]


# ------------------------------------------------------------------------------------ what fails at
# decoration


def test_what_can_never_work() -> None:
    """Terms that can never work are refused when the decorator runs."""

    def generator(order: int) -> Any:
        yield order

    async def agenerator(order: int) -> Any:
        yield order

    async def coroutine(order: int) -> None: ...

    def function(order: int) -> None: ...

    for wrong in (generator, agenerator):
        with pytest.raises(ImproperlyConfigured, match="generator"):
            idempotent_function(key_prefix="wrong")(wrong)
    with pytest.raises(ImproperlyConfigured, match="async"):
        idempotent_function(guarantee="atomic", key_prefix="coroutine")(coroutine)
    for given in (
        {"key": "order.["},
        {"validate": "order.["},
        {"key": "oder"},
        {"key": "[order, amount.value]"},
        {"validate": "amount"},
        {"data_keyword_argument": "amount"},
        {"hash_function": "md55"},
        {"hash_function": "shake_128"},
        {"expires_after": -1},
        {"keep_exceptions": [BaseException]},
        {"on_replay": 5},
        {"on_replay": coroutine},
        {"on_takeover": coroutine},
        {"serializer": 5},
        {"guarantee": "lease", "lease": 60, "expires_after": 60},
    ):
        with pytest.raises((ImproperlyConfigured, ValueError, TypeError)):
            idempotent_function(**given, key_prefix="function")(function)
    wrong_thing: Any = 5
    with pytest.raises(ImproperlyConfigured, match="function"):
        idempotent_function(wrong_thing)


def test_a_decorator_that_binds_self_is_refused() -> None:
    """Its arguments are not those of its signature: keyed by amount, two orders would be one
    call.
    """

    def sell(order: int, amount: int = 0) -> int:
        return order

    with pytest.raises(ImproperlyConfigured, match="on the method itself"):

        @method_decorator(idempotent_function(key="order"), name="sell")
        class Shop:
            def sell(self, order: int, amount: int = 0) -> int:
                return order

    partial: Any = functools.update_wrapper(functools.partial(sell, 1), sell)
    with pytest.raises(ImproperlyConfigured, match="needs a function"):
        idempotent_function(key="amount")(partial)


def test_a_decorator_with_other_arguments_is_reported() -> None:
    """The `__signature__` that `inspect` reads counts: a call's arguments are not those of the
    wrapped function.
    """

    def sell(gateway: str, order: int, amount: int = 0) -> int:
        return order

    @functools.wraps(sell)
    def injected(*args: Any, **kwargs: Any) -> int:
        return sell("gateway", *args, **kwargs)

    signature = inspect.signature(sell)
    injected.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=list(signature.parameters.values())[1:]
    )
    guarded = idempotent_function(key="order", key_prefix="injected")(injected)
    assert [guarded(1, 100), guarded(2, 100)] == [1, 2]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"keep_exceptions": 5}, "keep_exceptions takes classes of exceptions"),
        ({"keep_exceptions": None}, "keep_exceptions takes classes of exceptions"),
        ({"ttl": 5}, "takes no ttl. Type expires_after"),
        ({"key_prefix": 5}, "key_prefix is text"),
        ({"key_prefix": b"charge"}, "key_prefix is text"),
        ({"key_prefix": ""}, "key_prefix is text"),
        ({"key": "order", "jmespath_functions": 5}, "JMESPath functions are a subclass"),
        ({"key": "order", "jmespath_functions": object}, "JMESPath functions are a subclass"),
    ],
)
def test_a_wrong_type_is_reported_in_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    """A wrong type is refused with a clear sentence, not by the code that happens to fail on it."""
    with pytest.raises(TypeError, match=sentence):

        @idempotent_function(**fields)
        def function(order: int) -> None: ...


def test_what_only_turns_out_when_it_is_called() -> None:
    """A coroutine or generator hidden by a wrapper would run after the call, which must not count
    as done.
    """
    ran: list[int] = []

    async def coroutine(order: int) -> None:
        ran.append(order)

    def generator(order: int) -> Iterator[int]:
        ran.append(order)
        yield order

    async def stream(order: int) -> AsyncIterator[int]:
        ran.append(order)
        yield order

    class Request:
        """Like a client library's: sent when it is awaited."""

        def __init__(self, order: int) -> None:
            self.order = order

        def __await__(self) -> Iterator[None]:
            ran.append(self.order)
            yield

    def task(order: int) -> Future[None]:
        return Future()  # as of `executor.submit`

    for hidden in (coroutine, generator, stream, Request, task):
        charge = idempotent_function(key_prefix=hidden.__name__)(of(hidden))
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="which runs after the call"):
                charge(1)
        known = charge.idempotency.lookup(1)
        assert known is not None
        assert known.state == "failed"
    assert ran == []


def test_a_default_that_an_async_function_cannot_have() -> None:
    """An impossible default is never silently downgraded: the error says what to write."""

    @idempotent_function(key_prefix="charge")
    async def charge(order: int) -> None: ...

    atomic = override_settings(IDEMPOTENCY={**LEASES, "GUARANTEE": "atomic", "STORE": "orm"})
    with atomic, pytest.raises(ConfigurationError, match='guarantee="lease"'):
        async_to_sync(charge)(1)


def test_a_store_that_cannot_be_atomic() -> None:
    """The same holds for a store without transactions."""

    @idempotent_function(guarantee="atomic", key_prefix="charge")
    def charge(order: int) -> None: ...

    with pytest.raises(ConfigurationError, match="atomic"):
        charge(1)


# --------------------------------------------------------------------- what the function looks like


def test_it_is_a_plain_function() -> None:
    """Celery and django.tasks require a plain function; its name, docstring and signature are
    kept.
    """
    import inspect

    @idempotent_function(key_prefix="charge")
    def charge(order: int, *, amount: int = 5) -> None:
        """Charge."""

    @idempotent_function(key_prefix="acharge")
    async def acharge(order: int) -> None: ...

    assert inspect.isfunction(charge)
    assert charge.__doc__ == "Charge."
    assert str(inspect.signature(charge)) == "(order: 'int', *, amount: 'int' = 5) -> 'None'"
    assert iscoroutinefunction(acharge)
    assert not iscoroutinefunction(charge)


class Shop:
    def __init__(self) -> None:
        self.sold: list[int] = []

    @idempotent_function(key="order")
    def sell(self, order: int) -> int:
        self.sold.append(order)
        return order

    @staticmethod
    @idempotent_function
    def look(order: int) -> int:
        return order

    @idempotent_function
    @staticmethod
    def look_again(order: int) -> int:
        return order

    @classmethod
    @idempotent_function
    def make(cls, order: int) -> str:
        return f"{cls.__name__} {order}"

    @idempotent_function
    @classmethod
    def make_again(cls, order: int) -> str:
        return f"{cls.__name__} {order}"


def test_methods() -> None:
    """`self` is not part of the key: two objects for one shop share it.

    Either order of decorators works.
    """
    one, two = Shop(), Shop()
    assert [one.sell(1), two.sell(1), two.sell(order=2)] == [1, 1, 2]
    assert (one.sold, two.sold) == ([1], [2])
    assert [Shop.look(1), one.look(1), one.look_again(1)] == [1, 1, 1]
    assert [Shop.make(1), one.make(1), one.make_again(1)] == ["Shop 1"] * 3
    known = Shop.sell.idempotency.lookup(1)
    assert known is not None
    assert known.result() == 1
    assert Shop.sell.with_key("k")(one, 9) == 9


class AsyncShop:
    """Each method notes its runs in a shared place."""

    runs: ClassVar[list[str]] = []

    @idempotent_function(key="order")
    async def sell(self, order: int) -> int:
        self.runs.append("sell")
        return order

    @idempotent_function
    async def sell_all(self, order: int, *more: int) -> list[int]:
        self.runs.append("sell_all")
        return [order, *more]

    @staticmethod
    @idempotent_function
    async def look(order: int) -> int:
        AsyncShop.runs.append("look")
        return order

    @idempotent_function
    @staticmethod
    async def look_again(order: int) -> int:
        AsyncShop.runs.append("look_again")
        return order

    @classmethod
    @idempotent_function
    async def make(cls, order: int) -> str:
        cls.runs.append("make")
        return f"{cls.__name__} {order}"

    @idempotent_function
    @classmethod
    async def make_again(cls, order: int) -> str:
        cls.runs.append("make_again")
        return f"{cls.__name__} {order}"


def test_async_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds for coroutine functions: neither `self` nor `cls` is part of a key, and either
    order works.
    """
    monkeypatch.setattr(AsyncShop, "runs", [])

    class Branch(AsyncShop): ...

    async def main() -> None:
        one, two = AsyncShop(), AsyncShop()
        assert [await one.sell(1), await two.sell(1), await two.sell(order=2)] == [1, 1, 2]
        assert [await one.sell_all(1, 2), await two.sell_all(1, 2)] == [[1, 2]] * 2
        assert [await AsyncShop.look(1), await one.look(1), await two.look(order=1)] == [1] * 3
        assert [await AsyncShop.look_again(1), await one.look_again(1)] == [1] * 2
        assert [await AsyncShop.make(1), await one.make(1)] == ["AsyncShop 1"] * 2
        assert await AsyncShop.make_again(1) == "AsyncShop 1"
        for inherited in (Branch.make, Branch().make_again, Branch().sell):
            with pytest.raises(ConfigurationError, match="does not define"):
                await inherited(order=1)  # it would be told what another class has done
        assert await AsyncShop.sell.with_key("k")(one, 9) == 9
        for method, result in ((AsyncShop.sell, 1), (one.look, 1), (one.make, "AsyncShop 1")):
            known = await method.idempotency.alookup(1)
            assert known is not None
            assert known.result() == result

    for method in (
        AsyncShop.sell,
        AsyncShop.look,
        AsyncShop.look_again,
        AsyncShop.make,
        AsyncShop.make_again,
    ):
        assert iscoroutinefunction(method)
    async_to_sync(main)()
    once = dict.fromkeys(("sell_all", "look", "look_again", "make", "make_again"), 1)
    assert Counter(AsyncShop.runs) == {"sell": 3, **once}
    assert AsyncShop.sell.idempotency.key_for(1) == digest(1)
    for whole in (AsyncShop.look, AsyncShop.look_again, AsyncShop.make, AsyncShop.make_again):
        assert whole.idempotency.key_for(1) == digest({"order": 1})
