"""The rows of an operation, as this attempt has read and written them.

Another owner may write them, too: who is slower at a position reads all rows again.
"""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial
from typing import Any

from ...core.steps import StepRow, StepState
from ...runtime.handle import HELD_FOR
from .actions import Actions, Query
from .journal import Entry, Journal, PositionTaken, Watch


class Rows:
    """The rows of one run of an operation. Without a journal there are none."""

    #: The arguments of the operation's call, stored in the first row; `None`: no command can finish it.
    arguments: bytes | None = None

    def __init__(self, journal: Journal | None, *, resumed: bool) -> None:
        self.journal = journal
        #: `None`: not read yet. The first attempt has none.
        self._read: list[Any] | None = None if resumed else []

    def look(self) -> Actions[bool]:
        """Read what earlier attempts have done, unless it is known. Return whether there is any row."""
        if self._read is None:
            yield from self.reload()
        return bool(self)

    def reload(self) -> Actions[None]:
        """Read them again."""
        self._read, self._read_at = (yield Query(self._journal.load)), time.monotonic()

    def age(self, position: int) -> timedelta | None:
        """Return how long ago an earlier attempt may have begun the step at a position; `None`: none has come that far."""
        row, before = self.at(position), self.at(position - 1) if position > 1 else None
        if (of := before if row is None else row) is None or not hasattr(of, "read_at"):
            return None
        began = of.ended_at if row is None else of.created_at
        if began is None:  # this attempt has ended the step before
            return None
        age: timedelta = of.read_at - began
        return age + timedelta(seconds=time.monotonic() - self._read_at)

    def forget(self) -> None:
        """Forget them: one may have been written, or not."""
        self._read = None

    def __bool__(self) -> bool:
        """May there be any row?"""
        return self._read is None or bool(self._read)

    def at(self, position: int) -> Any:
        """Return the row at a position; `None`: the position is free."""
        return self._known[position - 1] if position <= len(self._known) else None

    @property
    def are_barred(self) -> bool:
        """Has the operation given up?"""
        return bool(self._known) and self._known[-1].state == StepState.BARRIER

    @property
    def are_watched(self) -> bool:
        """Does `idempotency_complete` look at one of them?"""
        return any(row.due_at is not None for row in self._read or ())

    @property
    def known(self) -> list[StepRow]:
        """What decisions need of them."""
        return [row.row for row in self._read or ()]

    def watch(self, position: int) -> Watch:
        """Return what is written about being watched with a row."""
        return Watch(already=self.are_watched, arguments=self.arguments if position == 1 else None)

    def begin(self, entry: Entry, position: int) -> Actions[Any]:
        """Commit that a step begins, and return its row. `None`: another owner was faster."""
        try:
            row = yield Query(self._journal.begin, entry, position, self.watch(position))
        except PositionTaken:
            yield from self.reload()
            if self.at(position) is None:
                raise  # another constraint refused it
            return None
        self.append(row)
        return row

    def add(self, entry: Entry, position: int, state: StepState, data: bytes, error: str) -> Actions[Any]:
        """Write a step that has ended, and return its row. `None`: another owner was faster."""
        try:
            row = yield Query(
                partial(self._journal.add, error=error), entry, position, state, data, self.watch(position)
            )
        except PositionTaken:
            yield from self.reload()
            return None
        self.append(row)
        return row

    def append(self, row: Any) -> None:
        """Note a row that was written at the next position."""
        if self._read is not None:
            self._read.append(row)

    def take(self, row: Any, *, anew: bool = False) -> Actions[bool]:
        """Take a step over from an earlier attempt; `anew`: that one had no effect. `False`: another owner was faster."""
        return self._change(Query(partial(self._journal.take, anew=anew), row))

    def end(self, row: Any, state: StepState, data: bytes, error: str = "") -> Actions[bool]:
        """Write how a step ended that has begun. `False`: another owner was faster."""
        return self._change(Query(self._journal.end, row, state, data, error))

    def _change(self, changing: Query) -> Actions[bool]:
        if (yield changing):
            return True
        yield from self.reload()
        return False

    def hold(self) -> Actions[None]:
        """Keep the rows until a person has decided."""
        yield Query(self._journal.hold, HELD_FOR)

    def finish(self) -> None:
        """Write that the operation has ended."""
        self._journal.finish(len(self._known) + 1)

    @property
    def _journal(self) -> Journal:
        assert self.journal is not None
        return self.journal

    @property
    def _known(self) -> list[Any]:
        assert self._read is not None
        return self._read
