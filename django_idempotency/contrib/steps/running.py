"""The steps of one run of an operation, in order: what an attempt knows of them. `one_step` does each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn

from ... import conf
from ...core.lifetime import remembered
from ...core.records import shortened
from ...core.steps import leaves_nothing
from ...errors import OperationCancelled, OwnershipLost
from .actions import Actions
from .journal import Journal
from .refusing import refuse_giving_up, refuse_misplaced, refuse_nested, refuse_transaction
from .rows import Rows
from .terms import StepTerms

logger = logging.getLogger("django_idempotency")


class Steps:
    """The steps of one run of an operation."""

    def __init__(
        self,
        journal: Journal | None,
        *,
        derive: Callable[[str], str],
        age: Callable[[], timedelta] = timedelta,
        is_lost: Callable[[], bool] = lambda: False,
        resumed: bool = False,
        atomic: str | None = None,
        arguments: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        #: `None`: nothing is remembered. The operation is `atomic`, or idempotency is off.
        self.journal = journal
        self.rows = Rows(journal, resumed=resumed)
        #: Is this the first attempt?
        self.first = not resumed
        self.derive = derive
        self._age = age
        self.is_lost = is_lost
        #: The database of the guard's transaction, if the operation is `atomic`.
        self.atomic = atomic
        self._arguments = arguments
        self._names: set[str] = set()
        self._position = 0
        #: The step that has begun and whose end is not known: it runs, or has raised what is not its result.
        self.open: str | None = None
        #: Has that one written here, and its transaction was rolled back?
        self.rolled_back = False
        #: The step that was cut by what is no Exception, such as a cancellation: it may still run, as in a thread.
        self.cut: str | None = None
        #: Has it given up? And is it known that nothing remains of what it did?
        self.given_up = False
        self.nothing_remains = False
        #: Must a person decide?
        self.held = False

    @property
    def begun(self) -> bool:
        """Has any step been done, or begun, or may it have been, so that a later attempt must be this operation's?"""
        return bool(self.rows)

    @property
    def unfinished(self) -> str | None:
        """Return the step of this attempt that may have had an effect elsewhere and has no result; `None`: there is none."""
        return None if self.journal is None or self.rolled_back else self.open

    @property
    def is_watched(self) -> bool:
        """Is something to be written when the operation has ended?

        Not after it has given up: until all is undone, `idempotency_complete` looks at it.
        """
        if self.journal is None or not self.begun or self.given_up or self.held:
            return False
        return self.rows.are_watched or not self.journal.keeps_results

    def gave_up(self, *, undone: bool) -> Actions[None]:
        """Note that it has given up. What an earlier attempt began may have left no row."""
        self.given_up = True
        if undone and self.first and (self.open is None or self.rolled_back):
            yield from self.rows.reload()
            self.nothing_remains = leaves_nothing(self.rows.known)

    def look(self) -> Actions[bool]:
        """See `begun`, after reading what earlier attempts have done."""
        return self.rows.look()

    def remembers(self, terms: StepTerms, position: int) -> bool:
        """Is the key of a step still known wherever an earlier attempt may have used it?

        A start that is not written was at the end of the step before, or later.
        """
        if terms.here or self.journal is None:
            return True
        unwritten = self.journal.attempt > 1 and not terms.starts
        if self.rows.at(position) is None and not unwritten:
            return True
        if (age := self.rows.age(position)) is None and position > 1:
            return True
        # Where a person has released the operation since, it begins anew.
        ages = [self._age(), *([] if age is None else [age])]
        return remembered(min(ages), lifetime=conf.lifetime(terms.name))

    def next_position(self, terms: StepTerms) -> Actions[int]:
        """Let a step begin, and return its position.

        Raises `ConfigurationError` for a step that cannot be here, `OperationCancelled` after the operation has given up,
        and `OwnershipLost` if another owner may run.
        """
        refuse_nested(terms.name)
        if self.given_up:
            self.stop()
        refuse_misplaced(terms, unfinished=self.open, earlier=self._names, atomic=self.atomic is not None)
        self._check_place(f"The step {terms.name!r}")
        self._names.add(terms.name)
        yield from self.look()
        if self.rows.are_barred:
            self.stop()
        self.open = terms.name
        self._position += 1
        if self._position == 1 and self.journal is not None:
            self.rows.arguments = self._arguments()  # before a body can change them
        return self._position

    def check_giving_up(self) -> None:
        """Raise `ConfigurationError` where an operation cannot give up, and `OwnershipLost` if another owner may run."""
        refuse_giving_up(atomic=self.atomic is not None)
        self._check_place("undo_steps()")

    def _check_place(self, what: str) -> None:
        if self.journal is not None:
            refuse_transaction(what, self.journal.using)
        if self.is_lost():
            raise OwnershipLost

    def stop(self) -> NoReturn:
        """Note that an earlier attempt has given up."""
        self.given_up = True
        raise OperationCancelled

    def close(self) -> None:
        """Note that the operation has ended."""
        if (left := self.rows.at(self._position + 1)) is not None:
            logger.error(
                "The operation of the record %s has ended without the step %r, which an earlier attempt did: the code takes "
                "another way. Find out what that step did.",
                shortened(str(left.record)),
                left.name,
            )
        self.rows.finish()
