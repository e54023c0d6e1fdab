"""Regressions of guarded functions: lost results, and different calls that shared a record."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Generic, TypeVar

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_idempotency import deadline, idempotent_function
from django_idempotency.contrib.batches.messages import Acknowledge, disposition
from django_idempotency.engine.operation import Operation
from django_idempotency.errors import ConfigurationError, KeyMissing, ResponseNotStored

from .helpers import LEASES, Runs, of

pytestmark = pytest.mark.usefixtures("memory")

T = TypeVar("T")


# --------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize(
    "key",
    [
        "[shop, order] || [shop, ref]",
        "shop && [shop, order]",
        "[shop, order] | @",
        "not_null([shop, order])",
    ],
)
def test_a_part_that_is_missing(key: str) -> None:
    """A missing part counts as missing in every form of key: two payments without it must not share
    a key.
    """

    @idempotent_function(key=key, key_prefix=f"pay {key}")
    def pay(shop: str, order: str | None = None, ref: str | None = None, amount: int = 0) -> int:
        return amount

    assert [pay("s", ref="r1", amount=1), pay("s", ref="r2", amount=2)] == [1, 2]


@pytest.mark.parametrize("terms", [{"key": "ids"}, {"key": "{all: ids}"}, {"key": "@"}, {}])
def test_a_value_of_nothing_but_nulls(terms: dict[str, Any]) -> None:
    """It identifies no event, so none gets the result of another; `required` refuses it."""

    @idempotent_function(data_keyword_argument="event", required=True, key_prefix="nulls", **terms)
    def on_event(event: dict[str, Any]) -> int:
        return 1

    with pytest.raises(KeyMissing):
        on_event({"ids": [None, {"id": None}]})


@pytest.mark.parametrize(
    "terms", [{"key": "event.id"}, {"data_keyword_argument": "event", "key": "id"}]
)
def test_the_name_of_var_keyword(terms: dict[str, Any]) -> None:
    """No call has an argument of that name, so every call would run unguarded."""

    def on_event(**event: Any) -> None: ...

    with pytest.raises(ImproperlyConfigured):
        idempotent_function(**terms, key_prefix="on_event")(on_event)


@pytest.mark.parametrize(
    ("key", "typed"),
    [
        ("event.detail.orderId", "'detail.orderId'"),
        (
            "[event.shop, event.lines[0].event.id, eventual]",
            "'[shop, lines[0].event.id, eventual]'",
        ),
        ("event[0].id", "'@[0].id'"),
        ("event", "'@'"),
    ],
)
@pytest.mark.parametrize("field", ["key", "validate"])
def test_a_root_that_is_the_arguments_own_name(key: str, typed: str, field: str) -> None:
    """It would select nothing, and run unguarded: the sentence says what to type."""
    terms: Any = {"data_keyword_argument": "event", "key_prefix": "own", field: key}
    with pytest.raises(ImproperlyConfigured, match=re.escape(f"type {field}={typed}")):
        idempotent_function(**terms)(lambda event: None)


def test_a_member_with_the_arguments_name() -> None:
    """It is selected by `@`."""

    @idempotent_function(data_keyword_argument="event", key="@.event.id", key_prefix="own")
    def handler(event: dict[str, Any]) -> int:
        return int(event["event"]["id"])

    assert [handler({"event": {"id": 1}, "at": at}) for at in (1, 2)] == [1, 1]
    assert handler.idempotency.lookup({"event": {"id": 1}}) is not None


def test_a_data_class_of_an_event_source() -> None:
    """What its properties compute identifies a call, as in AWS Powertools."""
    record = pytest.importorskip("aws_lambda_powertools.utilities.data_classes.sqs_event").SQSRecord
    runs = Runs(lambda record: record.body)
    terms: dict[str, Any] = {
        "data_keyword_argument": "order",
        "key": "message_id",
        "required": True,
    }
    handler = idempotent_function(key_prefix="sqs", **terms)(of(runs))
    assert [
        handler(record({"messageId": name, "body": name})) for name in ("m-1", "m-1", "m-2")
    ] == [*("m-1", "m-1", "m-2")]
    assert runs.count == 2


@override_settings(IDEMPOTENCY={**LEASES, "LEASE": 30})
@pytest.mark.parametrize(("ttl", "lease"), [(20, 10), (30, 15), (31, 30)])
def test_a_ttl_that_is_shorter_than_the_default_lease(ttl: float, lease: float) -> None:
    """It bounds the lease by itself; it is not the first call that finds the contradiction."""

    @idempotent_function(key="order", key_prefix="short", expires_after=ttl)
    def charge(order: int) -> int:
        return order

    assert charge(1) == 1
    known = charge.idempotency.lookup(1)
    assert known is not None
    record = known.record
    assert (record.lease_until - record.created_at).total_seconds() == lease


# ------------------------------------------------------------------------------------------ results


@dataclass
class Page(Generic[T]):
    items: list[T]


@dataclass
class Line:
    sku: str


@idempotent_function(key="order", guarantee="lease")
def listed(order: int) -> Page[Line]:
    return Page[Line](items=[Line("a")])  # called like this, typing leaves a note in the instance


def test_a_generic_dataclass() -> None:
    assert listed(1) == listed(1) == Page([Line("a")])


class Slotted(Exception):
    __slots__ = ("code",)

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def test_an_exception_with_slots() -> None:
    @idempotent_function(keep_exceptions=Slotted, key_prefix="slots")
    def charge(order: int) -> None:
        raise Slotted("declined", 51)

    for _ in range(2):
        with pytest.raises(Slotted) as raised:
            charge(1)
        assert raised.value.code == 51


@pytest.mark.django_db(transaction=True)
def test_a_serializer_of_an_async_function_may_ask_the_orm() -> None:
    """The serializer of an async function may query the ORM, as that of a sync function does."""

    @idempotent_function(
        key="name",
        serializer=(lambda group: group.pk, lambda pk: Group.objects.get(pk=pk)),
        key_prefix="make",
    )
    async def make(name: str) -> Group:
        return await Group.objects.acreate(name=name)

    async def thrice() -> tuple[Group, Group, Group]:
        first, second = await make("x"), await make("x")
        known = await make.idempotency.alookup("x")
        assert known is not None
        return first, second, await known.aresult()

    first, second, third = async_to_sync(thrice)()
    assert first == second == third


def test_aanswer_of_a_sync_function() -> None:
    """It runs in a thread, once."""
    work = Runs(lambda order: "done")
    charge: Any = idempotent_function(key_prefix="charge")(of(work))

    async def twice() -> list[Any]:
        return [await charge.idempotency.aanswer(1) for _ in range(2)]

    first, second = async_to_sync(twice)()
    assert [(first.result, first.replayed), (second.result, second.replayed)] == [
        ("done", False),
        ("done", True),
    ]
    assert work.count == 1


def test_sync_functions_at_once() -> None:
    """Each call of aanswer() has a thread of its own: here each goes on only when all have
    begun.
    """
    together = threading.Barrier(3)
    charge: Any = idempotent_function(key_prefix="charge")(
        of(lambda order: together.wait(timeout=30))
    )

    async def thrice() -> list[Any]:
        return await asyncio.gather(*(charge.idempotency.aanswer(order) for order in range(3)))

    assert sorted(answer.result for answer in asyncio.run(thrice())) == [0, 1, 2]


def test_answer_of_an_async_function() -> None:
    """It is refused before anything is claimed."""

    @idempotent_function(key="order", guarantee="lease", key_prefix="async answer")
    async def charge(order: int) -> None: ...

    with pytest.raises(ConfigurationError, match="aanswer"):
        charge.idempotency.answer(1)
    assert charge.idempotency.lookup(1) is None


def test_a_call_inside_a_handler_that_has_no_stored_result() -> None:
    """The inner call is done, but the handler is not: if acknowledged, its message would be
    lost.
    """
    effects: list[str] = []

    @idempotent_function(key="order", guarantee="lease", key_prefix="reserve")
    def reserve(order: str) -> Any:
        return object()  # cannot be stored

    @idempotent_function(key="message_id", guarantee="lease", key_prefix="handle")
    def handle(message_id: str, order: str) -> None:
        reserve(order)
        effects.append(message_id)

    reserve("17")
    with pytest.raises(ResponseNotStored) as raised:
        handle("m1", "17")
    known = handle.idempotency.lookup("m1", "17")
    assert (effects, known and known.state) == ([], "failed")
    assert disposition(raised.value) != Acknowledge()
    with pytest.raises(ResponseNotStored) as raised:
        reserve("17")
    assert disposition(raised.value) == Acknowledge()


# --------------------------------------------------------------------------------------------- life


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0, 5])
def test_a_chain_of_tasks(wait: int) -> None:
    """A task started inside a call neither keeps earlier calls alive nor asks all of them."""

    def living() -> int:
        gc.collect()
        return sum(type(thing) is Operation for thing in gc.get_objects())

    alive = [living()]

    async def main() -> None:
        over = asyncio.get_running_loop().create_future()

        def ended(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None and not over.done():
                over.set_exception(error)

        @idempotent_function(key="n", key_prefix=f"chain-{wait}", wait=wait)
        async def step(n: int) -> int:
            if n == 1500:
                alive.append(living())
                over.set_result(None)
            else:
                asyncio.ensure_future(step(n + 1)).add_done_callback(ended)
            return n

        await step(1)
        await over

    asyncio.run(main())
    assert alive[1] - alive[0] < 20


def test_a_lease_that_was_waited_for_ends_with_the_deadline() -> None:
    """A call that the host cuts off is taken over at once, even if its claim had to wait."""
    go, began = threading.Event(), threading.Event()
    found: list[datetime] = []

    @idempotent_function(wait=5, key_prefix="waited")
    def work(order: int) -> None:
        if not began.is_set():
            began.set()
            go.wait(10)
            raise ValueError
        known = work.idempotency.lookup(1)
        assert known is not None
        found.append(known.record.lease_until)

    def fail() -> None:
        with suppress(ValueError):
            work(1)

    first = threading.Thread(target=fail)
    first.start()
    assert began.wait(10)
    threading.Timer(1.5, go.set).start()
    ends = datetime.now(timezone.utc) + timedelta(seconds=4)
    with deadline(4):
        work(1)
    first.join()
    assert found[0] <= ends + timedelta(seconds=0.3)


def test_a_coroutine_that_is_closed() -> None:
    """A coroutine closed with its event loop stays busy until its lease ends, without a
    RuntimeError.
    """

    async def close_in_the_middle() -> None:
        began = asyncio.Event()

        @idempotent_function(key="order", guarantee="lease", key_prefix="closed")
        async def charge(order: int) -> None:
            began.set()
            await asyncio.sleep(10)

        coroutine = charge(1)
        task = asyncio.ensure_future(coroutine)
        await began.wait()
        coroutine.close()
        known = charge.idempotency.lookup(1)
        assert known is not None
        assert known.state == "running"
        task.cancel()
        with suppress(asyncio.CancelledError, RuntimeError):
            await task

    asyncio.run(close_in_the_middle())
