"""What a batch shows while it runs, and the outcome of each record."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ...errors import BatchFailed, ConfigurationError, RequestMismatch

#: `progress(done, total)`, called after each record; `total` is `None` if the records cannot be
#: counted.
OnProgress = Callable[[int, int | None], object]

#: Seconds between two writes: to a terminal, and to anything else.
FRAME = 0.1
PACE = 5.0


@contextmanager
def showing(
    progress: bool | OnProgress | None, total: int | None
) -> Iterator[Callable[[int], object]]:
    """Yield a function that takes the number done.

    `True` shows it, `None` only on a terminal; a function is called.
    """
    watched = sys.stderr is not None and sys.stderr.isatty()
    if callable(progress):
        report = progress
        yield lambda done: report(done, total)
    elif progress or (progress is None and watched):
        line = _Line(total, watched=watched)
        try:
            yield line
        finally:
            line.end()
    else:
        yield lambda _: None


class _Line:
    def __init__(self, total: int | None, *, watched: bool) -> None:
        self._of = "" if total is None else f" of {total:,}"
        self._watched = watched
        self._shown = time.monotonic()
        self._done = 0

    def __call__(self, done: int) -> None:
        self._done = done
        now = time.monotonic()
        if now - self._shown >= (FRAME if self._watched else PACE):
            self._shown = now
            self._write(f"\r{self}\033[K" if self._watched else f"{self}\n")

    def __str__(self) -> str:
        return f"{self._done:,}{self._of} records"

    def end(self) -> None:
        """Clear the line of a terminal; elsewhere print the final count."""
        self._write("\r\033[K" if self._watched else f"{self}\n")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the terminal was closed: the batch continues
            sys.stderr.write(text)
            sys.stderr.flush()


# --------------------------------------------------------------------------------------- the report

#: The outcomes of a record. Each has its own field in a report.
OUTCOMES = ("succeeded", "replayed", "busy", "failed", "not_started")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """The outcome of one record."""

    #: Its position in the batch, from 0.
    index: int
    record: Any = field(repr=False)
    #: The id that `item_id` selected; `None` if it found none.
    id: Any = None
    #: Its ordered group, as `group_id` selected it.
    group: Any = field(default=None, repr=False)
    result: Any = field(default=None, repr=False)
    #: The error that it failed with, or the reason that it was not started.
    error: Exception | None = None
    #: `False`: it ran without a key, or without the store, so it runs again if it is delivered
    #: again.
    guarded: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BatchReport:
    """The outcome of each record. Every record is in one of the five tuples, in the order of the
    batch.
    """

    #: The handler's name in the store and in logs.
    name: str
    #: The number of records with each outcome.
    counts: Mapping[str, int]
    #: They ran. Those that are not `guarded` will run again if they are delivered again.
    succeeded: tuple[BatchItem, ...]
    #: An earlier call had carried them out. If its result was not stored, `error` is
    #: `ResponseNotStored`.
    replayed: tuple[BatchItem, ...]
    #: They are running elsewhere.
    busy: tuple[BatchItem, ...]
    #: They raised.
    failed: tuple[BatchItem, ...]
    #: The deadline came, the store was unavailable, or an earlier record of an ordered group
    #: failed; see `error`.
    not_started: tuple[BatchItem, ...]
    #: How many of those that succeeded ran without a key, or without the store.
    unguarded: int = 0

    def __str__(self) -> str:
        counted = ", ".join(
            f"{self.counts[outcome]:,} {outcome.replace('_', ' ')}" for outcome in OUTCOMES
        )
        if not self.unguarded:
            return counted
        return f"{counted}; {self.unguarded:,} of those that succeeded ran unguarded"

    def __repr__(self) -> str:
        return f"<BatchReport of {self.name}: {self}>"

    @property
    def total(self) -> int:
        """The number of records."""
        return sum(self.counts.values())

    @property
    def mismatched(self) -> tuple[BatchItem, ...]:
        """Return the `failed` records whose key was used for another payload: a retry cannot
        succeed.
        """
        return tuple(item for item in self.failed if isinstance(item.error, RequestMismatch))

    @property
    def failures(self) -> tuple[BatchItem, ...]:
        """Return the records to retry, in the order of the batch: busy, failed and not started."""
        return tuple(
            sorted((*self.busy, *self.failed, *self.not_started), key=lambda item: item.index)
        )

    def batch_item_failures(
        self, *, handled: Iterable[BatchItem] = ()
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the result of a Lambda function with which SQS redelivers the failures and deletes
        all others.

        Those in `handled`, such as `report.mismatched` once dead-lettered, are also deleted. Raises
        `ConfigurationError` for a failure without an id, because SQS could not identify it.
        """
        elsewhere = {item.index for item in handled}
        failures = [item for item in self.failures if item.index not in elsewhere]
        for item in failures:
            if item.id in (None, ""):
                raise ConfigurationError(
                    f"Record {item.index} of this batch has no id. Type item_id=…, a "
                    "JMESPath expression or a function of "
                    "the record."
                ) from item.error
        return {"batchItemFailures": [{"itemIdentifier": item.id} for item in failures]}

    def raise_for_failures(self) -> None:
        """Raise `BatchFailed` if there are failures. Its cause is the first one's error."""
        failures = self.failures
        if not failures:
            return
        kinds = Counter(type(item.error).__name__ for item in failures)
        raise BatchFailed(
            f"{len(failures):,} of {self.total:,} records of {self.name} did not complete "
            f"({', '.join(f'{count:,} {kind}' for kind, count in kinds.most_common())}). "
            "Run the batch again: those that did are replayed.",
            report=self,
        ) from failures[0].error
