"""The journal of one operation: reads and writes its rows in the table of steps.

Results and arguments are sealed with ENCRYPTION_KEYS, if there are any, for their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connections, router, transaction

from ...api import BaseStore, Metric
from ...core.records import shortened
from ...core.serialization.results import Unreadable
from ...errors import StepResultNotStored
from ...functions.kept_exceptions import load_error
from ...stores.orm.clock import Clock
from ..at_rest import columns
from ..at_rest.sealed import CannotOpen
from .models import Step
from .rules import BARRIER_NAME, OWING, StepState
from .terms import StepTerms, function_at, results_of

#: `outcome`: "executed", "skipped" (an earlier attempt has done it), "failed", "in_doubt" (it broke
#: off, and a person decides), "undone", or "not_undone" (its undo is tried again, or a person
#: decides). A project may have many names of steps.
STEPS = Metric("steps", "Steps of operations by what became of them.", ("outcome",), unit="{step}")
#: Seconds until `idempotency_resume operations` first looks at an operation, or at an undo that was
#: begun here.
DUE = timedelta(minutes=5)


class PositionTaken(Exception):
    """Another owner of the operation was faster at this position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The rows of one operation."""

    #: A row of it, or one that is not written: its run, record, operation, store and attempt are
    #: those of all.
    of: Step
    #: The database of the table.
    using: str
    #: How long a row is kept (seconds): as long as the record.
    ttl: float
    #: Are results kept that long, too? Otherwise until the operation has ended.
    keeps_results: bool = True

    def load(self) -> list[Step]:
        """Return all rows in order, and keep them as long as the record, whose retention has begun
        again.

        Each has `read_at`, the time at which the database has read it.
        """
        if found := list(self._rows.order_by("position").annotate(read_at=Clock())):
            self._rows.update(purge_at=Clock(timedelta(seconds=self.ttl)))
        return found

    def insert(self, step: Step, *, watched: bool = False, contained: bool = True) -> Step:
        """Write a row, which says so far which step it is and how far that is, and return it.

        Raises `PositionTaken`.

        `watched`: `idempotency_resume operations` looks at another row of the operation, and one is
        enough.
        If not `contained`, an open transaction is broken where the position is taken.
        """
        # What keeps no results is watched for them, too: its process may die before it deletes
        # them.
        of_interest = (
            step.undo
            or step.arguments is not None
            or not (self.keeps_results or step.name == BARRIER_NAME)
        )
        step.run = self.of.run
        step.record = self.of.record
        step.operation = self.of.operation
        step.store = self.of.store
        step.attempt = self.of.attempt
        step.created_at = Clock()
        step.purge_at = Clock(timedelta(seconds=self.ttl))
        if step.result is not None:
            step.result = seal(bytes(step.result), step.run, step.position, "result")
            step.ended_at = Clock()
        if step.arguments is not None:
            step.arguments = seal(bytes(step.arguments), step.run, step.position, "arguments")
        if step.state == StepState.BARRIER or (of_interest and not watched):
            step.due_at = Clock(DUE)
        try:
            # A refused INSERT must not break a transaction that is open, such as a test's.
            contain = contained and connections[self.using].in_atomic_block
            with transaction.atomic(using=self.using) if contain else nullcontext():
                step.save(force_insert=True, using=self.using)
        except IntegrityError as taken:
            raise PositionTaken from taken
        return step

    def bar(self, position: int) -> Step:
        """Write the barrier, which is watched instead of the steps. Raises `PositionTaken`."""
        barrier = self.insert(Step(name=BARRIER_NAME, position=position, state=StepState.BARRIER))
        self._rows.filter(due_at__isnull=False).exclude(pk=barrier.pk).update(due_at=None)
        return barrier

    def finish(self, position: int) -> None:
        """Write that the operation has ended: a late owner finds that, and can neither go on nor
        give up.
        """
        self.insert(Step(name=BARRIER_NAME, position=position, state=StepState.ENDED))
        self.close()

    def hold(self, seconds: float) -> None:
        """Keep the rows as long as a record that waits for a person."""
        self._rows.update(purge_at=Clock(timedelta(seconds=seconds)))

    def take(self, step: Step, anew: bool) -> bool:
        """Let this attempt repeat a step that another one has begun.

        `False`: a third one was faster.

        `anew`: that one had no effect, so this is the first use of the step's key.
        """
        values: dict[str, Any] = {
            "attempt": self.of.attempt,
            **({"created_at": Clock()} if anew else {}),
        }
        return self._change(step, was=[StepState.STARTED], also={"attempt": step.attempt}, **values)

    def may_send(self) -> bool:
        """May the calls of its steps be sent?

        Not after it has given up or ended. Asked when a call is written down.
        """
        closed = (StepState.BARRIER, StepState.ENDED)
        return not self._rows.filter(state__in=closed).exists()

    def end(self, step: Step, state: StepState, result: bytes, error: str = "") -> bool:
        """Write how a step ended that has begun.

        `False`: another owner was faster, or the operation has given up.
        """
        sealed = seal(result, step.run, step.position, "result")
        was = [StepState.STARTED]
        return self._change(
            step, was=was, state=state, result=sealed, error=error, ended_at=Clock()
        )

    def mark(self, step: Step, was: Sequence[StepState], state: StepState) -> bool:
        """Change the state of a row, if it is still one of those. Return whether it was."""
        return self._change(step, was=was, state=state, ended_at=Clock(), error="")

    def begin_undo(self, step: Step, was: StepState, *, anew: bool) -> bool:
        """Write that the undo of a step is called. `False`: another process has undone it.

        The time of its first call stays, unless that had no effect, as far as a person knows
        (`anew`).
        """
        if step.state == StepState.UNDOING and not anew:
            return self._change(step, was=[StepState.UNDOING], error="")
        return self.mark(step, (was, StepState.UNDOING), StepState.UNDOING)

    def postpone(self, barrier: Step, failed: Mapping[Any, str], later: timedelta) -> None:
        """Note why undos failed, by the rows' primary keys, and when they are tried again."""
        # Another process may have undone it, or all of it, meanwhile.
        for pk, error in failed.items():
            self._all.filter(pk=pk, state__in=OWING).update(error=error)
        self._all.filter(pk=barrier.pk, due_at__isnull=False).update(due_at=Clock(later))

    def close(self) -> None:
        """Write that nothing is left to do for the operation."""
        rows = self._rows
        if self.keeps_results:
            rows.exclude(due_at=None).update(due_at=None)
        else:
            rows.update(due_at=None, result=None, arguments=None)

    def forget_arguments(self) -> dict[int, bytes]:
        """Let no command call the function again. Return what was stored, for put_back()."""
        rows = self._rows.exclude(arguments=None)
        if forgotten := {
            pk: bytes(arguments) for pk, arguments in rows.values_list("pk", "arguments")
        }:
            rows.update(arguments=None)
        return forgotten

    def put_back(self, forgotten: dict[int, bytes]) -> None:
        """Store arguments again, since the operation has not given up."""
        for pk, arguments in forgotten.items():
            self._all.filter(pk=pk, arguments=None).update(arguments=arguments)

    def _change(
        self,
        step: Step,
        *,
        was: Sequence[StepState],
        also: dict[str, Any] | None = None,
        **values: Any,
    ) -> bool:
        rows = self._all.filter(
            pk=step.pk, state__in=[state.value for state in was], **(also or {})
        )
        if rows.update(**values) == 0:
            return False
        for name, value in values.items():
            if not hasattr(value, "as_sql"):  # a time of the database, which nobody here asks for
                setattr(step, name, value)
        return True

    @property
    def _rows(self) -> Any:
        return self._all.filter(run=self.of.run)

    @property
    def _all(self) -> Any:
        return Step.objects.using(self.using)


def database_of(store: BaseStore) -> str:
    """Return the alias of the database that has the steps of a store's records: the records' own,
    if they are rows.
    """
    return store.rows_in or router.db_for_write(Step)


def seal(value: bytes, run: UUID, position: int, what: str) -> bytes:
    """Return a value as it is stored."""
    return columns.seal(value, *place(run, position, what))


def unseal(stored: bytes, run: UUID, position: int, what: str) -> bytes:
    """Return what was stored. Raises `CannotOpen`."""
    return columns.unseal(stored, *place(run, position, what))


def place(run: UUID, position: int, what: str) -> tuple[bytes, ...]:
    """Return the place of a column of a step."""
    return b"step", run.bytes, b"%d" % position, what.encode()


def load(row: Any, terms: StepTerms | None = None) -> Any:
    """Return the result of a row.

    Raises `StepResultNotStored`. `terms`: without them, its function is imported.
    """
    try:
        results = results_of(function_at(row.function)) if terms is None else terms.results
        return results.load(_stored(row))
    except (Unreadable, ImportError) as error:
        raise StepResultNotStored(
            f"The step {row.name!r} of the record {shortened(str(row.record))} is done, "
            f"and its result cannot be read: {error}"
        ) from error


def load_kept(row: Any, keep: Sequence[type[Exception]]) -> Exception:
    """Return the stored exception of a row. Raises `StepResultNotStored`."""
    try:
        return load_error(_stored(row), keep)
    except Unreadable as error:
        raise StepResultNotStored(
            f"The step {row.name!r} failed, and how is not stored."
        ) from error


def _stored(row: Any) -> bytes:
    """Return the plain bytes of a row's result. Raises `Unreadable`."""
    try:
        return unseal(row.result or b"", row.run, row.position, "result")
    except CannotOpen as error:
        raise Unreadable(str(error)) from error
