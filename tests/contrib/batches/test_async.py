"""Bounded concurrency, cancellation, and order among tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group

from django_idempotency import deadline, idempotent_function
from django_idempotency.contrib.batches import aprocess_batch
from django_idempotency.runtime.registry import stores
from tests.functions.helpers import NetworkDown

from .helpers import outcomes

pytestmark = pytest.mark.usefixtures("memory")


class Work:
    """Notes which records run, and how many at once."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.ended: list[Any] = []
        self.most = 0

    async def __call__(self, record: Any, turns: int = 3, beside: int = 0) -> Any:
        """Take so many turns of the loop, once so many have begun."""
        self.begun.append(record)
        self.most = max(self.most, len(self.begun) - len(self.ended))
        while len(self.begun) < beside:  # noqa: ASYNC110 - an event would belong to one loop
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        self.ended.append(record)
        return record


def handler_of(work: Any, **terms: Any) -> Any:
    @idempotent_function(**{"key_prefix": "handle", **terms})
    async def handle(record: Any) -> Any:
        return await work(record)

    return handle


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 30))


@pytest.mark.parametrize("concurrency", [1, 3, 10])
def test_bounded(concurrency: int) -> None:
    """At most this many run at once; the report has them in the order of the batch."""
    work = Work()

    async def uneven(record: int) -> int:
        result: int = await work(record, turns=7 - record % 7, beside=concurrency)
        return result

    report = run(aprocess_batch(range(50), handler_of(uneven), concurrency=concurrency))
    assert work.most == concurrency
    assert [item.result for item in report.succeeded] == list(range(50))
    assert (work.ended == sorted(work.ended)) is (concurrency == 1)


def test_read_as_they_are_needed() -> None:
    """Records are read as needed: a thousand records are not a thousand tasks."""
    read: list[int] = []
    tasks = 0

    def records() -> Any:
        for number in range(1_000):
            read.append(number)
            yield number

    work = Work()

    async def watched(record: int) -> None:
        nonlocal tasks
        await work(record)
        assert len(read) - len(work.ended) <= 5
        tasks = max(tasks, len(asyncio.all_tasks()))

    report = run(
        aprocess_batch(records(), handler_of(watched), concurrency=5, keep_successes=False)
    )
    assert report.counts["succeeded"] == 1_000
    assert tasks < 20


def test_an_async_iterable() -> None:
    """An async iterable, such as `aiterator()`, is read by one task at a time, and closed at the
    end.
    """
    closed = False

    async def records() -> AsyncIterator[int]:
        nonlocal closed
        try:
            for number in range(20):
                await asyncio.sleep(0)
                yield number
        finally:
            closed = True

    report = run(aprocess_batch(records(), handler_of(Work())))
    assert [item.result for item in report.succeeded] == list(range(20))
    assert closed


def test_one_key_twice_at_once() -> None:
    """The second is busy, or a replay with `wait=5`; the work runs once either way."""
    work = Work()
    report = run(aprocess_batch([1, 1], handler_of(work)))
    assert outcomes(report) == {"succeeded": [0], "busy": [1]}
    assert report.busy[0].error.retry_in > 0
    report = run(aprocess_batch([2, 2], handler_of(work, wait=20)))
    assert outcomes(report) == {"succeeded": [0], "replayed": [1]}
    assert work.begun == [1, 2]


def test_ordered_groups_run_beside_each_other() -> None:
    """One record at a time runs in each group, in order; several groups run at once."""
    work = Work()
    batch = [(group, number) for number in range(5) for group in "abc"]
    report = run(
        aprocess_batch(
            batch,
            handler_of(partial(work, beside=3)),
            ordered=True,
            group_id=lambda record: record[0],
        )
    )
    assert len(report.succeeded) == 15
    assert work.most == 3
    for group in "abc":
        mine = [record for record in work.begun if record[0] == group]
        assert mine == [record for record in work.ended if record[0] == group] == sorted(mine)


def test_an_ordered_batch_is_one_at_a_time() -> None:
    work = Work()
    run(aprocess_batch(range(20), handler_of(work), ordered=True))
    assert work.most == 1
    assert work.begun == list(range(20))


def test_deadlines_reach_the_tasks() -> None:
    """The tasks have the deadlines of the code that awaits the batch."""

    async def main() -> Any:
        with deadline(0.5):
            return await aprocess_batch(range(3), handler_of(Work()))

    assert outcomes(run(main())) == {"not_started": [0, 1, 2]}


def test_cancelled() -> None:
    """Running records are cancelled and awaited; nothing else starts, no task is left, no key is
    freed early.
    """
    begun: list[int] = []
    ended: list[int] = []

    async def slow(record: int) -> None:
        begun.append(record)
        if len(begun) == 3:
            full.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(record)

    full = asyncio.Event()

    async def main() -> None:
        others = asyncio.all_tasks()
        batch = asyncio.create_task(aprocess_batch(range(9), handler_of(slow), concurrency=3))
        await full.wait()
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
        assert begun == ended == [0, 1, 2]
        assert asyncio.all_tasks() == others

    run(main())
    assert {record.status.name for record in stores["default"]._records.values()} == {"RUNNING"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_handler_that_ends_the_batch(ordered: bool) -> None:
    """An exception that is not an Exception is raised; others finish what they have begun, and
    nothing else begins.
    """
    work = Work()
    read: list[int] = []

    def records() -> Any:
        for number in range(1000):
            read.append(number)
            yield number

    failing: list[Any] = []

    async def cut(record: int) -> None:
        if record == 1:
            failing.append(asyncio.current_task())
            raise asyncio.CancelledError
        work.begun.append(record)
        # Its call ends in a thread.
        while not failing or not failing[0].done():  # noqa: ASYNC110 - it is a task
            await asyncio.sleep(0)
        work.ended.append(record)

    options: dict[str, Any] = (
        {"ordered": True, "group_id": lambda record: record % 3} if ordered else {}
    )
    with pytest.raises(asyncio.CancelledError):
        run(aprocess_batch(records(), handler_of(cut), concurrency=6, **options))
    begun = [0, 2] if ordered else [0, 2, 3, 4, 5]
    assert sorted(work.begun) == sorted(work.ended) == begun
    assert len(read) <= 12  # nor is the rest read


@pytest.mark.parametrize("cut", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_loop(cut: type[BaseException]) -> None:
    """The exception is raised, and asyncio cancels the rest."""
    work = Work()

    async def handle(record: int) -> None:
        if record == 1:
            raise cut
        work.begun.append(record)
        await asyncio.Event().wait()

    with pytest.raises(cut):
        asyncio.run(aprocess_batch(range(30), handler_of(handle), concurrency=3))
    assert (sorted(work.begun), work.ended) == ([0, 2], [])


def test_mixed_failures() -> None:
    """The failures of some records do not affect others."""
    work = Work()

    async def some(record: int) -> int:
        await work(record, turns=record % 4)
        if record % 3 == 0:
            raise NetworkDown
        return record

    report = run(aprocess_batch(range(30), handler_of(some)))
    assert [item.index for item in report.failed] == list(range(0, 30, 3))
    assert len(report.succeeded) == 20


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, None])
def test_no_concurrency_at_all(concurrency: Any) -> None:
    with pytest.raises(ValueError, match="concurrency"):
        run(aprocess_batch([], handler_of(Work()), concurrency=concurrency))


@pytest.mark.django_db(transaction=True)
def test_a_queryset() -> None:
    """A queryset's length may not be read in an event loop; it is iterated as async code does."""
    Group.objects.bulk_create(Group(name=name) for name in "ab")

    @idempotent_function(key="group.id", key_prefix="handle")
    async def handle(group: Group) -> str:
        return group.name

    report = async_to_sync(aprocess_batch)(Group.objects.order_by("name"), handle)
    assert [item.result for item in report.succeeded] == ["a", "b"]
