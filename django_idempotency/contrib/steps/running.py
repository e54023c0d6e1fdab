"""The steps of one run of an operation, in order: what an attempt knows of them.

`one_step` does each.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from django.db import connections

from ... import conf
from ...api import CURRENT_STEP
from ...core.lifetime import remembered
from ...core.records import shortened
from ...engine.operation import Operation
from ...errors import ConfigurationError, OperationCancelled, OwnershipLost
from ...runtime.derivation import Unstored, derive
from ...stores.interrupted import in_transaction
from .actions import Actions, Query
from .journal import Journal, PositionTaken
from .models import Step
from .rules import StepRow, StepState, leaves_nothing
from .terms import StepTerms

logger = logging.getLogger("django_idempotency")


class Steps:
    """The steps of one run of an operation, and their rows, as this attempt has read and written
    them.

    Another owner may write rows, too: who is slower at a position reads all of them again.
    """

    def __init__(
        self,
        operation: Operation,
        journal: Journal | None,
        *,
        is_lost: Callable[[], bool],
        dump: Callable[[], bytes | None],
    ) -> None:
        """`is_lost`: has the lease of the work ended, or its host's deadline passed?

        `dump` returns its arguments.
        """
        #: `None`: nothing is remembered. The operation is `atomic`, or idempotency is off.
        self.journal = journal
        #: The rows; `None`: not read yet. The first attempt has none.
        self._read: list[Any] | None = [] if journal is None or not is_resumed(operation) else None
        #: Is this the first attempt?
        self.first = self._read is not None
        self.derive = partial(derive, operation)
        self._age = operation.age
        self.is_lost = is_lost
        #: The database of the guard's transaction, if the operation is `atomic`.
        self.atomic = (
            None
            if journal is not None or isinstance(operation, Unstored)
            else operation.store.using
        )
        self._dump = dump
        #: The arguments of the operation's call, stored in the first row; `None`: no command can
        #: finish it.
        self.arguments: bytes | None = None
        self._names: set[str] = set()
        self._position = 0
        #: The step that has begun and whose end is not known: it runs, or has raised what is not
        #: its result.
        self.open: str | None = None
        #: Has that one written here, and its transaction was rolled back?
        self.rolled_back = False
        #: The step that was cut by what is no Exception, such as a cancellation: it may still run,
        #: as in a thread.
        self.cut: str | None = None
        #: Has it given up? And is it known that nothing remains of what it did?
        self.given_up = False
        self.nothing_remains = False
        #: Must a person decide?
        self.held = False

    @property
    def begun(self) -> bool:
        """Has any step been done, or begun, or may it have been, so that a later attempt must be
        this operation's?
        """
        return self._read is None or bool(self._read)

    @property
    def unfinished(self) -> str | None:
        """Return the step of this attempt that may have had an effect elsewhere and has no result;
        `None`: there is none.
        """
        return None if self.journal is None or self.rolled_back else self.open

    @property
    def is_watched(self) -> bool:
        """Is something to be written when the operation has ended?

        Not after it has given up: until all is undone, `idempotency_resume operations` looks at it.
        """
        if self.journal is None or not self.begun or self.given_up or self.held:
            return False
        return self._are_watched or not self.journal.keeps_results

    def gave_up(self, *, undone: bool) -> Actions[None]:
        """Note that it has given up. What an earlier attempt began may have left no row."""
        self.given_up = True
        if undone and self.first and (self.open is None or self.rolled_back):
            yield from self.reload()
            self.nothing_remains = leaves_nothing(self.known)

    def remembers(self, terms: StepTerms, position: int) -> bool:
        """Is the key of a step still known wherever an earlier attempt may have used it?

        A start that is not written was at the end of the step before, or later.
        """
        if terms.is_here or self.journal is None:
            return True
        unwritten = self.journal.of.attempt > 1 and not terms.starts
        if self.row_at(position) is None and not unwritten:
            return True
        age = self._age_of(position)
        if age is None and position > 1:
            return True
        # Where a person has released the operation since, it begins anew.
        ages = [self._age(), *([] if age is None else [age])]
        return remembered(min(ages), lifetime=conf.lifetime(terms.name))

    def next_position(self, terms: StepTerms) -> Actions[int]:
        """Let a step begin, and return its position.

        Raises `ConfigurationError` for a step that cannot be here, `OperationCancelled` after the
        operation has given up, and `OwnershipLost` if another owner may run.
        """
        outer = CURRENT_STEP.get()
        if outer is not None:
            raise ConfigurationError(
                f"The step {terms.name!r} is inside the step {outer.name!r}: steps are not "
                "nested. Call it after that."
            )
        if self.given_up:
            self.stop()
        _refuse_misplaced(
            terms, unfinished=self.open, earlier=self._names, atomic=self.atomic is not None
        )
        self._check_place(f"The step {terms.name!r}")
        self._names.add(terms.name)
        yield from self.look()
        if self._read and self._read[-1].state == StepState.BARRIER:
            self.stop()
        self.open = terms.name
        self._position += 1
        if self._position == 1 and self.journal is not None:
            self.arguments = self._dump()  # before a body can change them
        return self._position

    def check_giving_up(self) -> None:
        """Raise `ConfigurationError` where an operation cannot give up, and `OwnershipLost` if
        another owner may run.
        """
        if self.atomic is not None:
            raise ConfigurationError(
                'undo_steps() under the guarantee "atomic": raise an exception, and all '
                "that the view wrote is rolled back."
            )
        outer = CURRENT_STEP.get()
        if outer is not None:
            raise ConfigurationError(
                f"undo_steps() is inside the step {outer.name!r}: call it after that."
            )
        self._check_place("undo_steps()")

    def _check_place(self, what: str) -> None:
        if self.journal is not None and in_transaction(connections[self.journal.using]):
            raise ConfigurationError(
                f"{what} is inside an open transaction, whose rollback would forget it. "
                "Call it outside of atomic(), and put "
                "@transaction.non_atomic_requests on the view if ATOMIC_REQUESTS is on."
            )
        if self.is_lost():
            raise OwnershipLost

    def stop(self) -> NoReturn:
        """Note that an earlier attempt has given up."""
        self.given_up = True
        raise OperationCancelled

    def close(self) -> None:
        """Note that the operation has ended."""
        left = self.row_at(self._position + 1)
        if left is not None:
            logger.error(
                "The operation of the record %s has ended without the step %r, which an "
                "earlier attempt did: the code takes "
                "another way. Find out what that step did.",
                shortened(str(left.record)),
                left.name,
            )
        self.noted.finish(len(self._rows) + 1)

    # ------------------------------------------------------------------------------------- the rows

    def look(self) -> Actions[bool]:
        """Read what earlier attempts have done, unless it is known.

        Return whether there is any row.
        """
        if self._read is None:
            yield from self.reload()
        return bool(self._read)

    def reload(self) -> Actions[None]:
        """Read them again."""
        self._read = yield Query(self.noted.load)
        self._read_at = time.monotonic()

    def forget(self) -> None:
        """Forget them: one may have been written, or not."""
        self._read = None

    def row_at(self, position: int) -> Any:
        """Return the row at a position; `None`: the position is free."""
        return self._rows[position - 1] if position <= len(self._rows) else None

    def _age_of(self, position: int) -> timedelta | None:
        """Return how long ago an earlier attempt may have begun the step at a position; `None`:
        none has come that far.
        """
        row = self.row_at(position)
        before = self.row_at(position - 1) if position > 1 else None
        of = before if row is None else row
        if of is None or not hasattr(of, "read_at"):
            return None
        began = of.ended_at if row is None else of.created_at
        if began is None:  # this attempt has ended the step before
            return None
        age: timedelta = of.read_at - began
        return age + timedelta(seconds=time.monotonic() - self._read_at)

    @property
    def known(self) -> list[StepRow]:
        """Those that are read."""
        return self._read or []

    @property
    def _are_watched(self) -> bool:
        """Does `idempotency_resume operations` look at one of them?"""
        return any(row.due_at is not None for row in self._read or ())

    def write(self, row: Step, *, contained: bool = True) -> Step:
        """Write a row at the next position. See `Journal.insert()`."""
        return self.noted.insert(row, watched=self._are_watched, contained=contained)

    def insert(self, row: Step) -> Actions[Any]:
        """Write a row at the next position, and return it. `None`: another owner was faster."""
        try:
            yield Query(self.write, row)
        except PositionTaken:
            yield from self.reload()
            if self.row_at(row.position) is None:
                raise  # another constraint refused it
            return None
        self.append(row)
        return row

    def append(self, row: Any) -> None:
        """Note a row that was written at the next position."""
        if self._read is not None:
            self._read.append(row)

    def change(self, changing: Callable[..., bool], *given: Any) -> Actions[bool]:
        """Change a row by a method of the journal.

        `False`: another owner was faster, and all rows are read again.
        """
        if (yield Query(changing, *given)):
            return True
        yield from self.reload()
        return False

    @property
    def noted(self) -> Journal:
        """The journal of what is remembered."""
        assert self.journal is not None, "what is not remembered has no rows"
        return self.journal

    @property
    def _rows(self) -> list[Any]:
        assert self._read is not None
        return self._read


def is_resumed(operation: Operation) -> bool:
    """May an earlier attempt have done steps?"""
    return (
        operation.attempt > 1
        or operation.run is None
        or operation.run.takeover
        or operation.run.resumed
    )


def _refuse_misplaced(
    terms: StepTerms, *, unfinished: str | None, earlier: AbstractSet[str], atomic: bool
) -> None:
    """Raise `ConfigurationError` for a step that cannot follow the earlier ones, or that `atomic`
    does not cover.
    """
    if unfinished is not None:
        raise ConfigurationError(
            f"The step {terms.name!r} cannot begin, because {unfinished!r} has not ended: "
            "it still runs, or it has raised "
            "what is not its result. Let that exception end the attempt, or name it in keep=[…]."
        )
    if terms.name in earlier:
        raise ConfigurationError(
            f"There are two steps {terms.name!r} in this operation: give each its own name."
        )
    if atomic and not (terms.is_here and terms.undo is None):
        raise ConfigurationError(
            f"The step {terms.name!r} calls elsewhere, or has an undo, and the guarantee "
            'is "atomic": all that the view '
            'writes is rolled back together, and a call elsewhere is not. Type guarantee="lease".'
        )
