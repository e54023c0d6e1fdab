"""Runs a batch from its first record to its report, sync and async; `Batch` decides about each
record, and calls nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sized,
)
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakValueDictionary

from django.core.exceptions import ImproperlyConfigured

from ... import remaining
from ...api import EXECUTION, Duration, Expression, seconds
from ...errors import DeadlinePassed, InProgress, ResponseNotStored, StoreUnavailable
from .report import OUTCOMES, BatchItem, BatchReport, OnProgress, showing

logger = logging.getLogger("django_idempotency")

Selecting = str | Callable[[Any], Any]

#: The spelling of AWS Lambda, boto3 and their wrappers; for streams, the sequence numbers.
ITEM_ID = (
    "messageId || MessageId || message_id || kinesis.sequenceNumber || dynamodb.SequenceNumber"
)
#: After this many consecutive records with the store unavailable, none is started: each would wait
#: for it again.
UNREACHABLE = 3


class Handler(Protocol):
    """A function under `@idempotent_function`."""

    #: The records of its calls.
    idempotency: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The options of a batch. Raises `ValueError` for an invalid one."""

    item_id: Selecting = ITEM_ID
    ordered: bool = False
    group_id: Selecting | None = None
    margin: Duration = 1.0
    keep_successes: bool = True

    def __post_init__(self) -> None:
        if self.group_id is not None and not self.ordered:
            raise ValueError(
                f"group_id={self.group_id!r} selects ordered groups: type ordered=True, too."
            )
        if seconds(self.margin) < 0:
            raise ValueError(f"margin={self.margin!r}: margin is a number of seconds, 0 or more.")


class Batch:
    """Decides before each record whether to start it, and notes its outcome afterwards. Not thread
    safe.
    """

    def __init__(self, handler: Any, records: Any, terms: BatchOptions, *, is_async: bool) -> None:
        self.handle = _handle_of(handler, is_async=is_async)
        #: The arguments before the record, such as the `self` of a method.
        self.owner = (handler.__self__,) if inspect.ismethod(handler) else ()
        #: `None`: unknown.
        self.total = _count(records, is_async=is_async)
        self.done = 0
        self._terms = terms
        self._item_id = _selector(terms.item_id)
        self._group_id = None if terms.group_id is None else _selector(terms.group_id)
        #: May a group be a list, of the parts that its expression builds it from?
        self._in_parts = getattr(self._group_id, "in_parts", True)
        self._margin = seconds(terms.margin)
        self._read = 0
        self._counts: Counter[str] = Counter()
        self._items: dict[str, list[BatchItem]] = {outcome: [] for outcome in OUTCOMES}
        self._stopped: Exception | None = None
        self._broken: dict[Any, Exception] = {}
        self._unreachable = 0
        self._unguarded = 0

    def item(self, record: Any) -> BatchItem:
        """Number the next record, and select its id and group."""
        index = self._read
        self._read = self._read + 1
        group = None
        try:
            if self._group_id is not None:
                found = self._group_id(record)
                if self._in_parts and isinstance(found, list):
                    found = tuple(found)
                hash(found)
                group = found
            return BatchItem(index=index, record=record, id=self._item_id(record), group=group)
        except Exception as error:  # noqa: BLE001 - one malformed record must not end the others
            return BatchItem(index=index, record=record, group=group, error=error)

    def starts(self, item: BatchItem) -> bool:
        """May this record be started? If not, notes the reason."""
        if item.error is not None:
            self.raised(item, item.error)
            return False
        left = remaining()
        if left is not None and left <= self._margin:
            self._stopped = self._stopped or DeadlinePassed()
        obstacle = self._stopped or self._broken.get(item.group)
        if obstacle is not None:
            self._note("not_started", item, error=obstacle)
        return obstacle is None

    @contextmanager
    def noting(self, item: BatchItem) -> Iterator[list[Any]]:
        """Note the answer of a call, which it adds to this list, or what it raises."""
        answers: list[Any] = []
        try:
            yield answers
        except Exception as error:  # noqa: BLE001 - reported in the batch report
            self.raised(item, error)
        else:
            self.answered(item, *answers)

    def answered(self, item: BatchItem, answer: Any) -> None:
        """Note the result of a call."""
        self._unreachable = 0
        self._unguarded += not answer.guarded
        ended = replace(item, guarded=answer.guarded)
        self._note("replayed" if answer.replayed else "succeeded", ended, result=answer.result)

    def raised(self, item: BatchItem, error: Exception) -> None:
        """Note the error of a call.

        A record that an earlier call carried out is done, even if its result was not kept.

        Raises an exception that suspends the execution around the batch: it does not concern the
        record.
        """
        execution = EXECUTION.get()
        if execution is not None and execution.suspends(error):
            raise error
        self._unreachable = self._unreachable + 1 if isinstance(error, StoreUnavailable) else 0
        if self._unreachable >= UNREACHABLE:
            self._stopped = self._stopped or error
        if isinstance(error, ResponseNotStored) and not error.inside:
            self._note("replayed", item, error=error)
            return
        if self._terms.ordered:
            self._broken.setdefault(item.group, error)
        self._note("busy" if isinstance(error, InProgress) else "failed", item, error=error)

    def report(self) -> BatchReport:
        """Return the report, and log its counts."""
        counts = {outcome: self._counts[outcome] for outcome in OUTCOMES}
        items = {
            name: tuple(sorted(found, key=lambda item: item.index))
            for name, found in self._items.items()
        }
        report = BatchReport(
            name=self.handle.name, counts=counts, unguarded=self._unguarded, **items
        )
        facts = {"event": "batch", "name": report.name, **counts}
        level = logging.INFO
        if report.unguarded:
            facts["unguarded"] = report.unguarded
            level = logging.WARNING
        logger.log(
            level, "A batch of %s has ended: %s.", report.name, report, extra={"idempotency": facts}
        )
        return report

    def _note(
        self, outcome: str, item: BatchItem, *, result: Any = None, error: Exception | None = None
    ) -> None:
        self.done += 1
        self._counts[outcome] += 1
        if self._terms.keep_successes or outcome not in ("succeeded", "replayed"):
            self._items[outcome].append(replace(item, result=result, error=error))


def _selector(expression: Selecting) -> Callable[[Any], Any]:
    """Return what selects from a record. Raises `ValueError` for what selects nothing."""
    if isinstance(expression, str):
        return Expression(expression)
    if inspect.iscoroutinefunction(expression) or not callable(expression):
        raise ValueError(
            f"{expression!r} selects nothing: type a JMESPath expression, or a sync function of "
            "the record."
        )
    return expression


def _handle_of(handler: Any, *, is_async: bool) -> Any:
    """Return the handle of a handler.

    Raises `ImproperlyConfigured` for one that a batch cannot call.
    """
    handle: Any = getattr(handler, "idempotency", None)
    if not hasattr(handle, "aanswer"):
        raise ImproperlyConfigured(
            f"A batch needs a handler under a key, not {handler!r}. Put "
            "@idempotent_function(key=…) on it."
        )
    bare = getattr(handler, "__func__", handler)
    # A decorator around the guarded function has the same handle, copied by functools.wraps().
    if getattr(bare, "__wrapped__", None) is not handle._terms.function:  # noqa: SLF001 - ours
        raise ImproperlyConfigured(
            f"{handle.name} is inside another decorator, which a batch would skip. Put "
            "@idempotent_function above it."
        )
    if handle.is_async and not is_async:
        raise ImproperlyConfigured(
            f"{handle.name} is async. Type await aprocess_batch(records, …)."
        )
    if is_async and not handle.is_async:
        raise ImproperlyConfigured(
            f"{handle.name} is sync. Type process_batch(records, …), in async code await "
            "sync_to_async(process_batch)(records, …)."
        )
    try:
        inspect.signature(handler).bind(None)
    except TypeError as error:
        raise ImproperlyConfigured(
            f"{handle.name} must take the record as its first argument, and no other "
            f"without a default: {error}."
        ) from error
    return handle


def _count(records: Any, *, is_async: bool) -> int | None:
    if isinstance(records, (Mapping, str, bytes)):
        raise TypeError(
            "A batch is a list or another iterable of records, not a "
            f'{type(records).__name__}: event["Records"].'
        )
    # A QuerySet's length would query the database.
    if is_async and isinstance(records, AsyncIterable):
        return None
    return len(records) if isinstance(records, Sized) else None


# ------------------------------------------------------------------------------------------ running


def process_batch(
    records: Iterable[Any],
    handler: Handler,
    *,
    item_id: Selecting = ITEM_ID,
    ordered: bool = False,
    group_id: Selecting | None = None,
    margin: Duration = 1.0,
    keep_successes: bool = True,
    progress: bool | OnProgress | None = None,
) -> BatchReport:
    """Call `handler(record)` for each record, under its own key; continue after failures; report
    each outcome.

    `handler` is decorated with `@idempotent_function`. `records` are read one by one. `item_id`
    selects a record's id for the report, by JMESPath or a callable; the default is the message id
    of SQS or of a stream. With `ordered=True` no record is started after one that is not done, in
    the whole batch or in the group that `group_id` selects. Inside `with deadline(…):` nothing is
    started once only `margin` seconds are left. Records that are not started are still read and
    reported, so an iterator must end. `keep_successes=False` only counts the records that are done,
    for batches that do not fit in memory. `progress` is shown on a terminal; `True` and `False`
    force or prevent that, and a function is called with `(done, total)` after each record.

    Raises `ImproperlyConfigured`, `TypeError` or `ValueError` for arguments that can never work,
    anything that `records` and `progress` raise, and exceptions that are not an `Exception`, such
    as `KeyboardInterrupt`. Records that are done by then are stored, and are replayed next time.
    """
    terms = BatchOptions(
        item_id=item_id,
        ordered=ordered,
        group_id=group_id,
        margin=margin,
        keep_successes=keep_successes,
    )
    batch = Batch(handler, records, terms, is_async=False)
    with showing(progress, batch.total) as show:
        for record in records:
            item = batch.item(record)
            if batch.starts(item):
                with batch.noting(item) as noted:
                    noted.append(batch.handle.answer(*batch.owner, item.record))
            show(batch.done)
    return batch.report()


async def aprocess_batch(
    records: Iterable[Any] | AsyncIterable[Any],
    handler: Handler,
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

    If two records share a key, the second is busy, or a replay with `wait=5`. Cancelling
    the batch cancels the running calls, and waits until each has settled in its store.
    """
    if type(concurrency) is not int or concurrency < 1:
        raise ValueError(f"concurrency={concurrency!r}: concurrency is a whole number, 1 or more.")
    terms = BatchOptions(
        item_id=item_id,
        ordered=ordered,
        group_id=group_id,
        margin=margin,
        keep_successes=keep_successes,
    )
    batch = Batch(handler, records, terms, is_async=True)
    reading = asyncio.Lock()
    # A lock exists only while it is held or waited for, because there may be as many groups as
    # records.
    groups: WeakValueDictionary[Any, asyncio.Lock] = WeakValueDictionary()
    # Set when something has ended the batch: nothing more is started, running calls finish.
    cut = asyncio.Event()

    def turn(item: BatchItem) -> AbstractAsyncContextManager[Any]:
        # A lock admits its waiters in order of arrival, which is that of the records.
        return groups.setdefault(item.group, asyncio.Lock()) if ordered else nullcontext()

    async def work(source: AsyncGenerator[Any, None], show: Callable[[int], object]) -> None:
        try:
            while not cut.is_set():
                async with reading:
                    item = batch.item(await anext(source))
                async with turn(item):
                    if not cut.is_set() and batch.starts(item):
                        with batch.noting(item) as noted:
                            noted.append(await batch.handle.aanswer(*batch.owner, item.record))
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
    """Wait for all, and return how each ended.

    When cancelled, cancel and wait for all; none starts another record.

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
