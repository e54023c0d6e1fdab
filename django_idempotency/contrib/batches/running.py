"""Runs a batch from its first record to its report, sync and async. The decisions about each record are in `batch`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any
from weakref import WeakValueDictionary

from ...core.policy import Duration
from ...functions.decorator import Guarded
from .batch import ITEM_ID, Batch, BatchOptions, Entry, Selecting
from .progress import OnProgress, showing
from .report import BatchReport


def process_batch(
    records: Iterable[Any],
    handler: Guarded[..., Any],
    *,
    item_id: Selecting = ITEM_ID,
    ordered: bool = False,
    group_id: Selecting | None = None,
    margin: Duration = 1.0,
    keep_successes: bool = True,
    progress: bool | OnProgress | None = None,
) -> BatchReport:
    """Call `handler(record)` for each record, under its own key; continue after failures; report each outcome.

    `handler` is decorated with `@idempotent_function`. `records` are read one by one. `item_id` selects a record's id
    for the report, by JMESPath or a callable; the default is the message id of SQS or of a stream. With `ordered=True`
    no record is started after one that is not done, in the whole batch or in the group that `group_id` selects. Inside
    `with deadline(…):` nothing is started once only `margin` seconds are left. Records that are not started are still
    read and reported, so an iterator must end. `keep_successes=False` only counts the records that are done, for
    batches that do not fit in memory. `progress` is shown on a terminal; `True` and `False` force or prevent that, and
    a function is called with `(done, total)` after each record.

    Raises `ImproperlyConfigured`, `TypeError` or `ValueError` for arguments that can never work, anything that
    `records` and `progress` raise, and exceptions that are not an `Exception`, such as `KeyboardInterrupt`. Records
    that are done by then are stored, and are replayed next time.
    """
    terms = BatchOptions(
        item_id=item_id, ordered=ordered, group_id=group_id, margin=margin, keep_successes=keep_successes
    )
    batch = Batch(handler, records, terms, is_async=False)
    with showing(progress, batch.total) as show:
        for record in records:
            entry = batch.entry(record)
            if batch.starts(entry):
                _call(batch, entry)
            show(batch.done)
    return batch.report()


async def aprocess_batch(
    records: Iterable[Any] | AsyncIterable[Any],
    handler: Guarded[..., Any],
    *,
    concurrency: int = 10,
    item_id: Selecting = ITEM_ID,
    ordered: bool = False,
    group_id: Selecting | None = None,
    margin: Duration = 1.0,
    keep_successes: bool = True,
    progress: bool | OnProgress | None = None,
) -> BatchReport:
    """See process_batch(). At most `concurrency` records run at once; within an ordered group, one.

    If two records share a key, the second is busy, or a replay with `on_busy="wait"`. Cancelling the batch cancels the
    running calls, and waits until each has settled in its store.
    """
    if type(concurrency) is not int or concurrency < 1:
        raise ValueError(f"concurrency={concurrency!r}: concurrency is a whole number, 1 or more.")
    terms = BatchOptions(
        item_id=item_id, ordered=ordered, group_id=group_id, margin=margin, keep_successes=keep_successes
    )
    batch = Batch(handler, records, terms, is_async=True)
    reading = asyncio.Lock()
    # A lock exists only while it is held or waited for, because there may be as many groups as records.
    groups: WeakValueDictionary[Any, asyncio.Lock] = WeakValueDictionary()
    cut = asyncio.Event()  # set when something has ended the batch: nothing more is started, running calls finish

    def turn(entry: Entry) -> AbstractAsyncContextManager[Any]:
        # A lock admits its waiters in order of arrival, which is that of the records.
        return groups.setdefault(entry.group, asyncio.Lock()) if ordered else nullcontext()

    async def work(source: AsyncGenerator[Any, None], show: Callable[[int], object]) -> None:
        try:
            while not cut.is_set():
                async with reading:
                    entry = batch.entry(await anext(source))
                async with turn(entry):
                    if not cut.is_set() and batch.starts(entry):
                        await _acall(batch, entry)
                    show(batch.done)
        except StopAsyncIteration:
            return
        except BaseException:
            cut.set()
            raise

    with showing(progress, batch.total) as show:
        async with aclosing(_each(records)) as source:
            tasks = [asyncio.create_task(work(source, show)) for _ in range(concurrency)]
            ends = await _ends(tasks, cut)
    for end in ends:
        if end is not None:
            raise end
    return batch.report()


async def _ends(tasks: list[asyncio.Task[None]], cut: asyncio.Event) -> list[BaseException | None]:
    """Wait for all, and return how each ended. When cancelled, cancel and wait for all; none starts another record.

    Cancelling a task is not enough: a handler may swallow it.
    """
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
            cut.set()
            for task in tasks:
                task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    if cancelled is not None:
        raise cancelled
    return ends


async def _each(records: Iterable[Any] | AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
    if isinstance(records, AsyncIterable):
        async for record in records:
            yield record
    else:
        for record in records:
            yield record


# ---------------------------------------------------------------------------------------------------------- one record


def _call(batch: Batch, entry: Entry) -> None:
    try:
        answer = batch.handle.answer(*batch.owner, entry.record)
    except Exception as error:  # noqa: BLE001 - reported in the batch report
        batch.raised(entry, error)
    else:
        batch.answered(entry, answer)


async def _acall(batch: Batch, entry: Entry) -> None:
    """See _call()."""
    try:
        answer = await batch.handle.aanswer(*batch.owner, entry.record)
    except Exception as error:  # noqa: BLE001 - reported in the batch report
        batch.raised(entry, error)
    else:
        batch.answered(entry, answer)
