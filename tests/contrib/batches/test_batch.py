"""A batch in either mode: each record under its own key, and a report of every one."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured

from django_idempotency import deadline, idempotent_function
from django_idempotency.contrib.batches import BatchReport, aprocess_batch, process_batch
from django_idempotency.engine import deadlines
from django_idempotency.errors import (
    BatchFailed,
    ConfigurationError,
    DeadlinePassed,
    InProgress,
    RequestMismatch,
    ResponseNotStored,
    StoreUnavailable,
)
from django_idempotency.runtime.registry import stores
from tests.functions.helpers import CardDeclined, NetworkDown, Runs

from .helpers import guarded, outcomes, process, sync_and_async

pytestmark = pytest.mark.usefixtures("memory")


def act(record: Any) -> Any:
    """Do what a record says: raise an exception, or return anything else."""
    what = record["body"]
    if isinstance(what, Exception):
        raise what
    return what


def messages(*bodies: Any) -> list[dict[str, Any]]:
    return [{"messageId": f"m{number}", "body": body} for number, body in enumerate(bodies)]


def answer(*ids: str) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": name} for name in ids]}


# ----------------------------------------------------------------------------------------- outcomes


@sync_and_async
@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ([], {}),
        ([1, 2], {"succeeded": [0, 1]}),
        # Continues after failures.
        (
            [NetworkDown(), 1, NetworkDown(), 2],
            {"succeeded": [1, 3], "failed": [0, 2]},
        ),
        ([InProgress(), 1, RequestMismatch()], {"busy": [0], "succeeded": [1], "failed": [2]}),
        # A call inside it: the record was started.
        (
            [1, DeadlinePassed(), 2],
            {"succeeded": [0, 2], "failed": [1]},
        ),
        ([StopIteration(1), StopAsyncIteration(), 1], {"failed": [0, 1], "succeeded": [2]}),
    ],
)
def test_outcomes(mode: str, bodies: list[Any], expected: dict[str, list[int]]) -> None:
    """Every record is in one of the five outcomes, in the order of the batch."""
    report = process(messages(*bodies), guarded(act, mode, key="record.messageId"), mode)
    assert outcomes(report) == expected
    assert report.total == len(bodies)
    assert {name: count for name, count in report.counts.items() if count} == {
        n: len(i) for n, i in expected.items()
    }
    assert [item.index for item in report.failures] == [
        i for i, body in enumerate(bodies) if isinstance(body, Exception)
    ]


@sync_and_async
@pytest.mark.parametrize("result", [None, 0, "", [], False, {"id": 1}], ids=repr)
def test_results(mode: str, result: Any) -> None:
    """Results of the first run and of the replay are equal in type and value; a falsy one is not a
    failure.
    """
    handler = guarded(work := Runs(lambda _: result), mode)
    for outcome in ("succeeded", "replayed"):
        report = process(messages(1), handler, mode)
        (item,) = getattr(report, outcome)
        assert (item.result, type(item.result), item.error, item.id) == (
            result,
            type(result),
            None,
            "m0",
        )
        assert item.record == messages(1)[0]
    assert work.count == 1


@sync_and_async
def test_a_second_run_replays_what_is_done(mode: str) -> None:
    """A second run replays what is done, and runs what failed."""
    broken = {"m1"}

    def work(record: Any) -> str:
        if record["messageId"] in broken:
            raise NetworkDown
        return str(record["messageId"])

    handler = guarded(work, mode)
    assert outcomes(process(messages(1, 2, 3), handler, mode)) == {
        "succeeded": [0, 2],
        "failed": [1],
    }
    broken.clear()
    report = process(messages(1, 2, 3), handler, mode)
    assert outcomes(report) == {"replayed": [0, 2], "succeeded": [1]}
    assert [item.result for item in report.replayed] == ["m0", "m2"]


def test_one_key_twice_in_a_batch() -> None:
    """The records run one after the other, so the second is a replay."""
    handler = guarded(work := Runs(lambda record: record["n"]), "sync", key="record.id")
    report = process([{"id": 1, "n": 5}, {"id": 1, "n": 6}], handler, "sync")
    assert outcomes(report) == {"succeeded": [0], "replayed": [1]}
    assert report.replayed[0].result == 5
    assert work.count == 1


@sync_and_async
def test_a_record_without_a_key_is_told(mode: str, caplog: Any) -> None:
    """It runs at each delivery: the report says how many did, and which."""
    handler = guarded(work := Runs(), mode, key="record.id")
    batch = [{"id": 1}, {"id": None}, {"other": 2}]
    with caplog.at_level(logging.INFO):
        first = process(batch, handler, mode)
        again = process(batch, handler, mode)
    assert work.count == 5
    assert (first.unguarded, again.unguarded) == (2, 2)
    assert [item.guarded for item in first.succeeded] == [True, False, False]
    assert str(again) == (
        "2 succeeded, 1 replayed, 0 busy, 0 failed, 0 not started; 2 of those that "
        "succeeded ran unguarded"
    )
    said = [each for each in caplog.records if "A batch of" in each.getMessage()]
    assert [each.levelname for each in said] == ["WARNING", "WARNING"]
    assert said[0].idempotency["unguarded"] == 2


@sync_and_async
def test_a_mismatch(mode: str) -> None:
    """A mismatch has failed, and can be distinguished from temporary failures."""
    handler = guarded(Runs(), mode, key="record.id", validate="record.amount")
    batch = [{"id": 1, "amount": 5}, {"id": 1, "amount": 6}, {"id": 2, "amount": 5}]
    report = (
        process(batch, handler, mode, concurrency=1)
        if mode == "async"
        else process(batch, handler, mode)
    )
    assert outcomes(report) == {"succeeded": [0, 2], "failed": [1]}
    assert report.mismatched == report.failed


@sync_and_async
def test_a_kept_exception(mode: str) -> None:
    """A kept exception fails each time, and runs once."""
    handler = guarded(
        work := Runs(lambda _: act({"body": CardDeclined("no", 51)})),
        mode,
        keep_exceptions=CardDeclined,
    )
    for _ in range(2):
        (item,) = process([1], handler, mode).failed
        assert isinstance(item.error, CardDeclined)
    assert work.count == 1


@sync_and_async
def test_a_result_that_was_not_stored(mode: str) -> None:
    """The record is done: it counts as replayed, and reports that its result is missing."""
    handler = guarded(work := Runs(lambda _: threading.Lock()), mode)
    assert outcomes(process([1], handler, mode)) == {"succeeded": [0]}
    report = process([1], handler, mode)
    assert outcomes(report) == {"replayed": [0]}
    assert isinstance(report.replayed[0].error, ResponseNotStored)
    assert work.count == 1


@sync_and_async
@pytest.mark.parametrize("terms", [{}, {"key": "record.nothing"}], ids=["guarded", "without a key"])
def test_a_result_that_was_not_stored_of_a_call_inside(mode: str, terms: Any) -> None:
    """The error of an inner call does not concern the record, which has failed."""
    handler = guarded(Runs(lambda _: act({"body": ResponseNotStored()})), mode, **terms)
    for _ in range(2):
        assert outcomes(process([1], handler, mode)) == {"failed": [0]}


@sync_and_async
def test_a_record_without_a_key(mode: str) -> None:
    """It runs unguarded, like any call; with `required` it fails and the others continue."""
    batch = [{"id": None}, {"id": 1}]
    assert outcomes(process(batch, guarded(Runs(), mode, key="record.id"), mode)) == {
        "succeeded": [0, 1]
    }
    required = guarded(Runs(), mode, key="record.id", required=True)
    assert outcomes(process(batch, required, mode)) == {"failed": [0], "replayed": [1]}


class Shop:
    def __init__(self) -> None:
        self.sold: list[int] = []

    @idempotent_function
    def sell(self, order: int) -> int:
        self.sold.append(order)
        return order

    @idempotent_function
    async def asell(self, order: int) -> int:
        self.sold.append(order)
        return order

    @idempotent_function
    @classmethod
    def make(cls, order: int) -> str:
        return f"{cls.__name__} {order}"


def test_methods() -> None:
    """A bound method is a handler, too."""
    shop = Shop()
    report = process_batch([1, 2, 1], shop.sell)
    assert [item.result for item in (*report.succeeded, *report.replayed)] == [1, 2, 1]
    async_to_sync(aprocess_batch)([3], shop.asell)
    assert shop.sold == [1, 2, 3]
    assert [item.result for item in process_batch([1], Shop.make).succeeded] == ["Shop 1"]


# ------------------------------------------------------------------------------------------ reports


def test_what_is_reported_to_sqs() -> None:
    """SQS redelivers the failures, in order, and deletes all others; without failures the list is
    empty.
    """
    handler = guarded(act, "sync", key="record.messageId")
    report = process_batch(messages(1, NetworkDown(), InProgress(), RequestMismatch()), handler)
    assert report.batch_item_failures() == answer("m1", "m2", "m3")
    assert report.batch_item_failures(handled=report.mismatched) == answer("m1", "m2")
    assert process_batch(messages(1), handler).batch_item_failures() == answer()


def test_the_batch_processor_of_powertools() -> None:
    """It calls a guarded function for each record, reports what fails, and its next event replays
    the others.
    """
    batch = pytest.importorskip("aws_lambda_powertools.utilities.batch")
    run = Runs(lambda record: act({"body": NetworkDown() if record["messageId"] == "m2" else None}))
    handler = guarded(run, "sync", key="record.messageId")
    event = {
        "Records": [
            {"messageId": f"m{number}", "body": "{}", "eventSource": "aws:sqs"}
            for number in (1, 2, 3)
        ]
    }
    for _delivery in range(2):
        processor = batch.BatchProcessor(event_type=batch.EventType.SQS)
        found = batch.process_partial_response(event, handler, processor)
        assert found == answer("m2")
    assert run.count == 4


@pytest.mark.parametrize(
    ("record", "item_id", "expected"),
    [
        ({"messageId": "a"}, None, "a"),  # AWS Lambda's event
        ({"MessageId": "a"}, None, "a"),  # boto3
        (SimpleNamespace(message_id="a"), None, "a"),  # wrappers
        ({"kinesis": {"sequenceNumber": "7"}}, None, "7"),
        ({"dynamodb": {"SequenceNumber": "7"}}, None, "7"),
        ({"meta": {"id": 5}}, "meta.id", 5),
        ({"id": 0}, "id", 0),  # a falsy id is an id
        ({"id": 3}, lambda record: f"row-{record['id']}", "row-3"),
    ],
)
def test_ids(record: Any, item_id: Any, expected: Any) -> None:
    """An id is found by the usual spellings, or by the given selector."""
    handler = guarded(Runs(lambda _: act({"body": NetworkDown()})), "sync", key=lambda _: 1)
    given = {} if item_id is None else {"item_id": item_id}
    report = process_batch([record], handler, **given)
    assert report.batch_item_failures() == answer(expected)


@pytest.mark.parametrize(
    "record", [{"n": 1}, {"messageId": None}, {"messageId": ""}, 1, "messageId", None]
)
def test_a_failure_without_an_id(record: Any) -> None:
    """SQS would read a response without ids as a total failure or, worse, delete the message: an
    error says so.
    """
    handler = guarded(Runs(lambda _: act({"body": NetworkDown()})), "sync", key=lambda _: 1)
    report = process_batch([record], handler)
    with pytest.raises(ConfigurationError, match="item_id="):
        report.batch_item_failures()
    assert report.batch_item_failures(handled=report.failed) == answer()


@sync_and_async
@pytest.mark.parametrize("option", ["item_id", "group_id"])
def test_a_selector_that_fails(mode: str, option: str) -> None:
    """The record has failed without being run; the others continue, and the cause is shown."""
    handler = guarded(work := Runs(), mode)
    given = {
        option: lambda record: record["id"],
        **({"ordered": True} if option == "group_id" else {}),
    }
    report = process([{"id": 1}, {}, {"id": 2}], handler, mode, **given)
    assert outcomes(report) == {"succeeded": [0, 2], "failed": [1]}
    assert work.count == 2
    with pytest.raises(ConfigurationError) as caught:
        report.batch_item_failures()
    assert isinstance(caught.value.__cause__, KeyError)


@sync_and_async
def test_an_invalid_group(mode: str) -> None:
    """A list cannot be a key of a dict, so the record has failed."""
    handler = guarded(Runs(), mode)
    report = process([{"to": "a"}, {"to": ["a"]}], handler, mode, ordered=True, group_id="to")
    assert outcomes(report) == {"succeeded": [0], "failed": [1]}
    assert isinstance(report.failed[0].error, TypeError)


def test_raising_for_failures() -> None:
    """The error has the report, the first error as its cause, and no record in its text."""
    handler = guarded(act, "sync", key="record.messageId")
    first = NetworkDown("secret")
    report = process_batch(messages(1, first, InProgress(), NetworkDown()), handler)
    with pytest.raises(BatchFailed) as caught:
        report.raise_for_failures()
    assert caught.value.report is report
    assert caught.value.__cause__ is first
    assert (
        f"3 of 4 records of {handler.idempotency.name} did not complete (2 NetworkDown, 1 "
        "InProgress)" in str(caught.value)
    )
    assert "secret" not in str(caught.value)
    process_batch(messages(1), handler).raise_for_failures()


def test_nothing_of_a_record_in_a_repr() -> None:
    """Reports end up in logs and error trackers, so their repr shows nothing of a record."""
    report = process_batch([{"card": "4242"}], guarded(lambda record: record, "sync"))
    assert "4242" not in f"{report!r} {report} {report.succeeded!r}"
    assert str(report) == "1 succeeded, 0 replayed, 0 busy, 0 failed, 0 not started"


@sync_and_async
def test_one_line_in_the_log(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    """One line at the end has the counts."""
    handler = guarded(act, mode, key="record.messageId")
    with caplog.at_level(logging.INFO, "django_idempotency"):
        process(messages(1, 2, NetworkDown()), handler, mode)
    (line,) = (record for record in caplog.records if record.getMessage().startswith("A batch"))
    assert line.levelno == logging.INFO
    assert "2 succeeded, 0 replayed, 0 busy, 1 failed, 0 not started" in line.getMessage()
    assert line.idempotency == {  # type: ignore[attr-defined]
        "event": "batch",
        "name": handler.idempotency.name,
        "succeeded": 2,
        "replayed": 0,
        "busy": 0,
        "failed": 1,
        "not_started": 0,
    }


# -------------------------------------------------------------------------------------------- order


@sync_and_async
def test_ordered(mode: str) -> None:
    """Nothing is started after the first record that is not done: SQS FIFO gets all of those
    back.
    """
    handler = guarded(work := Runs(act), mode, key="record.messageId")
    first = NetworkDown()
    report = process(messages(1, first, 2, 3), handler, mode, ordered=True)
    assert outcomes(report) == {"succeeded": [0], "failed": [1], "not_started": [2, 3]}
    assert report.batch_item_failures() == answer("m1", "m2", "m3")
    assert {item.error for item in report.not_started} == {first}
    assert work.count == 2


@sync_and_async
@pytest.mark.parametrize("error", [InProgress(), RequestMismatch(), NetworkDown()], ids=repr)
def test_ordered_groups(mode: str, error: Exception) -> None:
    """A busy record also blocks its group; other groups continue."""
    handler = guarded(act, mode, key="record.messageId")
    batch = messages(1, error, 2, 3, 4)
    for record, group in zip(batch, "aabab", strict=True):
        record["attributes"] = {"MessageGroupId": group}
    report = process(batch, handler, mode, ordered=True, group_id="attributes.MessageGroupId")
    assert [item.index for item in report.succeeded] == [0, 2, 4]
    assert [item.index for item in report.not_started] == [3]


@pytest.mark.slow
def test_groups_that_are_over_are_forgotten() -> None:
    """Finished groups are forgotten: a stream may have as many groups as records."""
    kept: list[int] = []

    def count(done: int, _total: int | None) -> None:
        if done in (1, 25, 50):  # this inspects all objects of the process
            kept.append(sum(type(thing) is asyncio.Lock for thing in gc.get_objects()))

    handler = guarded(act, "async", key="record.messageId")
    report = process(
        messages(*range(50)), handler, "async", ordered=True, group_id="messageId", progress=count
    )
    assert len(report.succeeded) == 50
    assert max(kept) - kept[0] < 20


# ----------------------------------------------------------------------------------------- deadline


class Host:
    """A host's clock, which advances as records are handled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(deadlines, "time", SimpleNamespace(monotonic=lambda: self.now))

    def work(self, seconds: float) -> float:
        self.now += seconds
        return seconds


@sync_and_async
@pytest.mark.parametrize(
    ("options", "started"),
    [
        ({}, 3),  # 10, 7 and 4 seconds are left; then 1, which is not more than the margin
        ({"margin": 0}, 4),
        ({"margin": 4}, 2),
        ({"margin": 3.9}, 3),
        ({"margin": 600}, 0),
    ],
)
def test_deadline(mode: str, options: Any, started: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started within the margin; the rest is reported, so that SQS redelivers it."""
    host = Host(monkeypatch)
    options = {**options, **({"concurrency": 1} if mode == "async" else {})}
    handler = guarded(lambda record: host.work(3), mode, key="record.messageId")
    with deadline(10):
        report = process(messages(*range(6)), handler, mode, **options)
    assert len(report.succeeded) == started
    assert report.batch_item_failures() == answer(*(f"m{number}" for number in range(started, 6)))
    assert {type(item.error) for item in report.not_started} == {DeadlinePassed}


def test_a_lambda_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SQS event with a duplicate and a mismatch, and too little time, behaves as the how-to
    says.
    """
    host = Host(monkeypatch)
    charged: list[int] = []

    class Context:
        def get_remaining_time_in_millis(self) -> int:
            return 5000

    @idempotent_function(
        key="from_json(message.body).order_id",
        validate="from_json(message.body).amount",
        key_prefix="charge",
    )
    def charge(message: Any) -> None:
        charged.append(json.loads(message["body"])["order_id"])
        host.work(2)

    orders = [(7, 100), (7, 100), (7, 999), (8, 100), (9, 100)]
    event = {
        "Records": [
            {
                "messageId": f"m{number}",
                "body": json.dumps({"order_id": order, "amount": amount, "sent": number}),
            }
            for number, (order, amount) in enumerate(orders)
        ]
    }
    with deadline(Context()):
        report = process_batch(event["Records"], charge)
    assert outcomes(report) == {
        "succeeded": [0, 3],
        "replayed": [1],
        "failed": [2],
        "not_started": [4],
    }
    assert report.batch_item_failures(handled=report.mismatched) == answer("m4")
    assert charged == [7, 8]


# -------------------------------------------------------------------------------- what ends a batch


@sync_and_async
def test_without_a_store(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record fails on its own; after three in a row the rest need not wait for the store."""
    gone = {2, 4, 5, 6}
    asked: list[int] = []

    def claim(ticket: Any) -> Any:
        asked.append(len(asked))
        if asked[-1] in gone:
            raise StoreUnavailable
        return really(ticket)

    store = stores["default"]
    really = store.claim
    monkeypatch.setattr(store, "claim", claim)
    options = {"concurrency": 1} if mode == "async" else {}
    report = process(range(9), guarded(Runs(), mode), mode, **options)
    assert outcomes(report) == {
        "succeeded": [0, 1, 3],
        "failed": [2, 4, 5, 6],
        "not_started": [7, 8],
    }
    assert isinstance(report.not_started[0].error, StoreUnavailable)


@pytest.mark.parametrize(
    ("mode", "cut"),
    [
        ("sync", KeyboardInterrupt),
        ("sync", SystemExit),
        ("sync", GeneratorExit),
        ("async", GeneratorExit),
    ],
)
def test_what_is_not_an_exception(mode: str, cut: type[BaseException]) -> None:
    """The exception is raised; completed records are remembered."""
    ends: list[type[BaseException]] = [cut]

    def work(record: int) -> int:
        if record == 2 and ends:
            raise ends.pop()
        return record

    handler = guarded(work, mode)
    options = {"concurrency": 1} if mode == "async" else {}
    with pytest.raises(cut):
        process([1, 2, 3], handler, mode, **options)
    assert outcomes(process([1, 3], handler, mode)) == {"replayed": [0], "succeeded": [1]}


@sync_and_async
def test_records_that_cannot_be_read(mode: str) -> None:
    """An error of the iterable is raised."""

    def rows() -> Any:
        yield 1
        raise UnicodeError

    handler = guarded(Runs(), mode)
    with pytest.raises(UnicodeError):
        process(rows(), handler, mode)
    assert outcomes(process([1], handler, mode)) == {"replayed": [0]}


# ------------------------------------------------------------------------------------ what is wrong


def handle(record: Any) -> None: ...


@idempotent_function
def sync_handler(record: Any) -> None: ...


@idempotent_function
async def async_handler(record: Any) -> None: ...


@idempotent_function
def with_two(record: Any, other: Any) -> None: ...


@idempotent_function
def by_name(*, record: Any) -> None: ...


def around(function: Any) -> Any:
    """Choose a tenant, for example: a typical decorator."""

    @functools.wraps(function)
    def wrapped(*given: Any) -> Any:
        raise AssertionError("it is never called")

    return wrapped


class Tenants:
    @around
    @idempotent_function
    def sell(self, record: Any) -> None: ...


@pytest.mark.parametrize(
    ("mode", "handler", "says"),
    [
        ("sync", handle, "@idempotent_function"),
        ("sync", None, "@idempotent_function"),
        ("async", handle, "@idempotent_function"),
        ("sync", async_handler, "await aprocess_batch"),
        ("async", sync_handler, "process_batch"),
        ("sync", with_two, "first argument"),
        ("sync", by_name, "first argument"),
        ("sync", Shop.sell, "first argument"),  # without a shop
        ("sync", around(sync_handler), "another decorator"),
        ("async", around(async_handler), "another decorator"),
        ("sync", Tenants().sell, "another decorator"),
    ],
)
def test_handlers_that_cannot_be_called(mode: str, handler: Any, says: str) -> None:
    """An invalid handler is refused before the first record, with what to write."""
    with pytest.raises(ImproperlyConfigured, match=says):
        process([1], handler, mode)


@sync_and_async
@pytest.mark.parametrize(
    ("records", "options", "error"),
    [
        ({"Records": []}, {}, TypeError),  # the event, not its records
        ("abc", {}, TypeError),
        ([], {"item_id": "a.["}, ValueError),
        ([], {"ordered": True, "group_id": "a.["}, ValueError),
        ([], {"group_id": "a"}, ValueError),  # without an order
        ([], {"margin": -1}, ValueError),
    ],
)
def test_options_that_make_no_sense(
    mode: str, records: Any, options: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        process(records, sync_handler if mode == "sync" else async_handler, mode, **options)


# ------------------------------------------------------------------------------------- long batches


class Row:
    """A record that can be observed."""

    def __init__(self, number: int, alive: Any) -> None:
        self.number = number
        alive.add(self)


@pytest.mark.slow
@sync_and_async
def test_a_long_stream(mode: str) -> None:
    """Records are read one by one; with `keep_successes=False` little more is held than is
    running.
    """
    from weakref import WeakSet

    alive: WeakSet[Row] = WeakSet()
    most = 0

    def rows() -> Any:
        nonlocal most
        for number in range(300):
            yield Row(number, alive)
            most = max(most, len(alive))

    handler = guarded(lambda row: row.number, mode, key="record.number")
    for outcome in ("succeeded", "replayed"):
        report: BatchReport = process(rows(), handler, mode, keep_successes=False)
        assert report.counts[outcome] == report.total == 300
        assert outcomes(report) == {}
        assert most <= 50  # some are left to the garbage collector, more of them on Python 3.10
