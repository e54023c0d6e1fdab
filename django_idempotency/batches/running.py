"""A batch from its first record to its report, sync and async side by side. What a record may do is decided in `batch`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any
from weakref import WeakValueDictionary

from ..core.policy import Duration
from ..functions.decorator import Guarded
from .batch import ITEM_ID, Batch, Entry, Selecting, Terms
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
    """Call `handler(record)` for each record, under its own key; go on after failures; report what became of each.

    `handler` is decorated with `@idempotent_function`. `records` are read one by one. `item_id` selects what names a
    record in the report, by JMESPath or a callable; by default that is the id of a message of SQS or of a stream.
    `ordered=True` starts nothing behind a record that is not done, in the whole batch or in the group that `group_id`
    selects. Inside `with deadline(…):` nothing is started when no more than `margin` seconds are left. What is not
    started is reported all the same, so an endless iterator needs an end of its own. `keep_successes=False` counts what
    is done and forgets it, for more records than memory holds. `progress` is shown where a terminal watches; `True` and
    `False` say so, and a function is told `(done, total)` after each record.

    Raises `ImproperlyConfigured`, `TypeError` or `ValueError` for what can never work; what `records` and `progress` raise;
    and what is no `Exception`, such as `KeyboardInterrupt`. What is done by then is remembered, and replayed next time.
    """
    terms = Terms(item_id=item_id, ordered=ordered, group_id=group_id, margin=margin, keep_successes=keep_successes)
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
    """See process_batch(). At most `concurrency` records are under way at once; in an ordered group, one.

    Two records with one key may meet: the second is busy, or with `on_busy="wait"` a replay. Who cancels the batch
    cancels the calls that are under way, and waits until each has told its store.
    """
    if type(concurrency) is not int or concurrency < 1:
        raise ValueError(f"concurrency={concurrency!r}: concurrency is a whole number, 1 or more.")
    terms = Terms(item_id=item_id, ordered=ordered, group_id=group_id, margin=margin, keep_successes=keep_successes)
    batch = Batch(handler, records, terms, is_async=True)
    reading = asyncio.Lock()
    # A lock is there as long as somebody holds it or waits for it: groups may be as many as records.
    groups: WeakValueDictionary[Any, asyncio.Lock] = WeakValueDictionary()
    cut = asyncio.Event()  # something ended the batch: nothing more is started, what is under way is finished

    def turn(entry: Entry) -> AbstractAsyncContextManager[Any]:
        # A lock lets those who wait in by the order in which they came, which is that of the records.
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
    """Wait for all, and return how each has ended. Cancelled, cancel and wait for all; none of them goes on to a next record.

    That a task was cancelled is not enough: a handler may make an answer of it.
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
    except Exception as error:  # noqa: BLE001 - it is in the report
        batch.raised(entry, error)
    else:
        batch.answered(entry, answer)


async def _acall(batch: Batch, entry: Entry) -> None:
    """See _call()."""
    try:
        answer = await batch.handle.aanswer(*batch.owner, entry.record)
    except Exception as error:  # noqa: BLE001 - it is in the report
        batch.raised(entry, error)
    else:
        batch.answered(entry, answer)
