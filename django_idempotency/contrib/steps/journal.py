"""The journal of one operation: reads and writes its rows in the table of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import IntegrityError, connections, router, transaction

from ...core.steps import BARRIER_NAME, OWING, StepState
from ...instrumentation.meters import Metric
from ...stores.base import BaseStore
from .sealing import seal

if TYPE_CHECKING:
    from ...stores.orm.clock import Clock
    from .models import Step

#: `outcome`: "executed", "skipped" (an earlier attempt has done it), "failed", "in_doubt" (it broke off, and a person
#: decides), "undone", or "not_undone" (its undo is tried again, or a person decides). A project may have many names of steps.
STEPS = Metric("steps", "Steps of operations by what became of them.", ("outcome",), unit="{step}")
APP = "django_idempotency.contrib.steps"
#: Seconds until `idempotency_complete` first looks at an operation, or at an undo that was begun here.
DUE = timedelta(minutes=5)


class PositionTaken(Exception):
    """Another owner of the operation was faster at this position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is written about a step when it begins, or when it has been done at once."""

    name: str
    function: str = ""
    undo: str = ""
    ask: str = ""
    key: str = ""
    undo_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What decides whether `idempotency_complete` looks at a row: one row of an operation is enough."""

    #: Is another row of the operation watched?
    already: bool = False
    #: Those of the call, with which the command can finish it.
    arguments: bytes | None = None


UNWATCHED = Watch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The rows of one operation."""

    run: UUID
    record: UUID
    operation: UUID
    store: str
    attempt: int
    #: The database of the table.
    using: str
    #: How long a row is kept (seconds): as long as the record.
    ttl: float
    #: Are results kept that long, too? Otherwise until the operation has ended.
    keeps_results: bool = True

    def load(self) -> list[Step]:
        """Return all rows in order, and keep them as long as the record, whose retention has begun again.

        Each has `read_at`, the time at which the database has read it.
        """
        steps = _steps(self.using).filter(run=self.run)
        if found := list(steps.order_by("position").annotate(read_at=clock())):
            steps.update(purge_at=clock(timedelta(seconds=self.ttl)))
        return found

    def begin(self, entry: Entry, position: int, watch: Watch = UNWATCHED) -> Step:
        """Write that a step begins. Raises `PositionTaken`."""
        return self._insert(entry, position, StepState.STARTED, watch=watch)

    def add(
        self,
        entry: Entry,
        position: int,
        state: StepState,
        result: bytes,
        watch: Watch = UNWATCHED,
        *,
        error: str = "",
        contained: bool = True,
    ) -> Step:
        """Write a step that is done, or has failed with an exception of the class `error`. Raises `PositionTaken`; if not `contained`, an open transaction is broken then."""
        return self._insert(entry, position, state, result=result, watch=watch, error=error, contained=contained)

    def bar(self, position: int) -> Step:
        """Write the barrier, which is watched instead of the steps. Raises `PositionTaken`."""
        barrier = self._insert(Entry(name=BARRIER_NAME), position, StepState.BARRIER, due=True)
        _steps(self.using).filter(run=self.run, due_at__isnull=False).exclude(pk=barrier.pk).update(due_at=None)
        return barrier

    def finish(self, position: int) -> None:
        """Write that the operation has ended: a late owner finds that, and can neither go on nor give up."""
        self._insert(Entry(name=BARRIER_NAME), position, StepState.ENDED)
        self.close()

    def hold(self, seconds: float) -> None:
        """Keep the rows as long as a record that waits for a person."""
        _steps(self.using).filter(run=self.run).update(purge_at=clock(timedelta(seconds=seconds)))

    def take(self, step: Step, *, anew: bool = False) -> bool:
        """Let this attempt repeat a step that another one has begun. `False`: a third one was faster.

        `anew`: that one had no effect, so this is the first use of the step's key.
        """
        values: dict[str, Any] = {"attempt": self.attempt, **({"created_at": clock()} if anew else {})}
        return self._change(step, was=[StepState.STARTED], also={"attempt": step.attempt}, **values)

    def may_send(self) -> bool:
        """May the calls of its steps be sent? Not after it has given up or ended. Asked when a call is written down."""
        closed = (StepState.BARRIER, StepState.ENDED)
        return not _steps(self.using).filter(run=self.run, state__in=closed).exists()

    def end(self, step: Step, state: StepState, result: bytes, error: str = "") -> bool:
        """Write how a step ended that has begun. `False`: another owner was faster, or the operation has given up."""
        return self._change(
            step,
            was=[StepState.STARTED],
            state=state,
            result=seal(result, step.run, step.position, "result"),
            error=error,
            ended_at=clock(),
        )

    def mark(self, step: Step, was: Sequence[StepState], state: StepState) -> bool:
        """Change the state of a row, if it is still one of those. Return whether it was."""
        return self._change(step, was=was, state=state, ended_at=clock(), error="")

    def begin_undo(self, step: Step, was: StepState, *, anew: bool) -> bool:
        """Write that the undo of a step is called. `False`: another process has undone it.

        The time of its first call stays, unless that had no effect, as far as a person knows (`anew`).
        """
        if step.state == StepState.UNDOING and not anew:
            return self._change(step, was=[StepState.UNDOING], error="")
        return self.mark(step, (was, StepState.UNDOING), StepState.UNDOING)

    def postpone(self, barrier: Step, failed: Mapping[Any, str], later: timedelta) -> None:
        """Note why undos failed, by the rows' primary keys, and when they are tried again."""
        # Another process may have undone it, or all of it, meanwhile.
        for pk, error in failed.items():
            _steps(self.using).filter(pk=pk, state__in=OWING).update(error=error)
        _steps(self.using).filter(pk=barrier.pk, due_at__isnull=False).update(due_at=clock(later))

    def close(self) -> None:
        """Write that nothing is left to do for the operation."""
        rows = _steps(self.using).filter(run=self.run)
        if self.keeps_results:
            rows.exclude(due_at=None).update(due_at=None)
        else:
            rows.update(due_at=None, result=None, arguments=None)

    def forget_arguments(self) -> dict[int, bytes]:
        """Let no command call the function again. Return what was stored, for put_back()."""
        rows = _steps(self.using).filter(run=self.run).exclude(arguments=None)
        if forgotten := {pk: bytes(arguments) for pk, arguments in rows.values_list("pk", "arguments")}:
            rows.update(arguments=None)
        return forgotten

    def put_back(self, forgotten: dict[int, bytes]) -> None:
        """Store arguments again, since the operation has not given up."""
        for pk, arguments in forgotten.items():
            _steps(self.using).filter(pk=pk, arguments=None).update(arguments=arguments)

    def _change(
        self, step: Step, *, was: Sequence[StepState], also: dict[str, Any] | None = None, **values: Any
    ) -> bool:
        rows = _steps(self.using).filter(pk=step.pk, state__in=[state.value for state in was], **(also or {}))
        if rows.update(**values) == 0:
            return False
        for name, value in values.items():
            if not hasattr(value, "as_sql"):  # a time of the database, which nobody here asks for
                setattr(step, name, value)
        return True

    def _insert(
        self,
        entry: Entry,
        position: int,
        state: StepState,
        *,
        result: bytes | None = None,
        watch: Watch = UNWATCHED,
        due: bool = False,
        error: str = "",
        contained: bool = True,
    ) -> Step:
        from .models import Step  # not above: loads the model

        arguments = watch.arguments
        # What keeps no results is watched for them, too: its process may die before it deletes them.
        wants_watch = (
            entry.undo != "" or arguments is not None or (not self.keeps_results and entry.name != BARRIER_NAME)
        )
        due = due or (wants_watch and not watch.already)
        step = Step(
            run=self.run,
            position=position,
            name=entry.name,
            state=state,
            record=self.record,
            operation=self.operation,
            store=self.store,
            attempt=self.attempt,
            function=entry.function,
            undo=entry.undo,
            ask=entry.ask,
            key=entry.key,
            undo_key=entry.undo_key,
            result=None if result is None else seal(result, self.run, position, "result"),
            arguments=None if arguments is None else seal(arguments, self.run, position, "arguments"),
            error=error,
            created_at=clock(),
            ended_at=None if result is None else clock(),
            due_at=clock(DUE) if due else None,
            purge_at=clock(timedelta(seconds=self.ttl)),
        )
        try:
            with _contained(self.using) if contained else nullcontext():
                step.save(force_insert=True, using=self.using)
        except IntegrityError as taken:
            raise PositionTaken from taken
        return step


def database_of(store: BaseStore) -> str:
    """Return the alias of the database that has the steps of a store's records: the records' own, if they are rows."""
    from .models import Step

    return store.rows_in or router.db_for_write(Step)


def clock(later: timedelta = timedelta(0)) -> Clock:
    """Return the clock of the database that runs the statement, or that much later."""
    from ...stores.orm.clock import Clock  # not above: loads the models

    return Clock(later)


def _steps(using: str) -> Any:
    from .models import Step

    return Step.objects.using(using)


def _contained(using: str) -> AbstractContextManager[None]:
    """Contain a refused INSERT in a savepoint if a transaction is open, such as a test's."""
    return transaction.atomic(using=using) if connections[using].in_atomic_block else nullcontext()
