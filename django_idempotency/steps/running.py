"""The steps of one operation, in order: what each finds in the journal, and what it writes there. Sync and async."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from django.db import InterfaceError, OperationalError, connections, transaction

from ..core.failures import named
from ..core.records import shortened
from ..core.steps import StepAction, StepState, action
from ..errors import (
    ConfigurationError,
    OperationCancelled,
    OperationHeld,
    OwnershipLost,
    Problem,
    StepResultNotStored,
    StepsChanged,
)
from ..instrumentation.meters import meters
from ..instrumentation.outcomes import STEP_EXECUTED, STEP_FAILED, STEP_IN_DOUBT, STEP_SKIPPED
from ..runtime.current_step import RunningStep, current_step
from ..runtime.takeovers import HELD_FOR, HoldForReview, RunAgain, UseResult
from ..runtime.transactions import in_transaction
from ..serialization.results import Unstorable, dump_error
from .actions import Actions, Call, Query
from .borders import Border, reached
from .elsewhere import only_in
from .journal import Entry, Journal, PositionTaken, Watch
from .reading import load, load_kept
from .terms import KEY_ARGUMENT, StepTerms, path_of, takes_key

logger = logging.getLogger("django_idempotency")


@dataclass(slots=True)
class Begun:
    """A step that has been entered."""

    position: int
    running: RunningStep
    #: Its row, if one is written.
    row: Any = None
    #: Is it done, so that its body must not run? Then this is what it returned.
    done: bool = False
    result: Any = None


@dataclass(frozen=True, slots=True)
class Asked:
    """The argument of `ask`: a step was found started and not ended. Return `run()`, `found(result)` or `hold()`."""

    name: str
    #: The key under which it may have called.
    key: str

    def run(self) -> RunAgain:
        """It had no effect: run it. Where the operation gives up, there is nothing to undo."""
        return RunAgain()

    def found(self, result: Any) -> UseResult:
        """It was carried out, and this is its result."""
        return UseResult(result)

    def hold(self) -> HoldForReview:
        """Nobody knows: a person must decide."""
        return HoldForReview()


class Steps:
    """The steps of one run of an operation."""

    def __init__(
        self,
        journal: Journal | None,
        *,
        derive: Callable[[str], str],
        is_lost: Callable[[], bool] = lambda: False,
        resumed: bool = False,
        atomic: str | None = None,
        arguments: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        #: `None`: nothing is remembered. The operation is `atomic`, or idempotency is off.
        self.journal = journal
        self._derive = derive
        self._is_lost = is_lost
        #: The database of the guard's transaction, if the operation is `atomic`.
        self._atomic = atomic
        self._arguments = arguments
        self._stored_arguments: bytes | None = None
        self._names: set[str] = set()
        #: The rows; `None`: not read yet. The first attempt has none.
        self.rows: list[Any] | None = None if resumed else []
        self._position = 0
        #: The step that has begun and whose end is not known: it runs, or has raised what is not its result.
        self._open: str | None = None
        #: Has that one written here, and its transaction was rolled back?
        self._rolled_back = False
        #: Has it given up?
        self.given_up = False
        #: Must a person decide?
        self.held = False
        #: What a step raised that has left the work: the client gets that, whatever is made of the exception.
        self.problem: Problem | None = None

    @property
    def begun(self) -> bool:
        """Has any step been done, or begun, so that a later attempt must be this operation's?"""
        return self.journal is not None and bool(self.rows)

    @property
    def unfinished(self) -> str | None:
        """Return the step of this attempt that may have had an effect elsewhere and has no result; `None`: there is none."""
        return None if self.journal is None or self._rolled_back else self._open

    @property
    def is_watched(self) -> bool:
        """Is something to be written when the operation has ended?

        Not after it has given up: until all is undone, `idempotency_complete` looks at it.
        """
        if not self.begun or self.given_up or self.held:
            return False
        return self._is_watched or not self._journal.keeps_results

    def look(self) -> Actions[bool]:
        """See `begun`, after reading what earlier attempts have done."""
        if self.rows is None:
            yield from self._reload()
        return self.begun

    def close(self) -> None:
        """Note that the operation has ended."""
        if len(self._rows) > self._position:
            logger.error(
                "The operation of the record %s has ended without the step %r, which an earlier attempt did: the code takes "
                "another way. Find out what that step did.",
                shortened(str(self._journal.record)),
                self._rows[self._position].name,
            )
        self._journal.finish(len(self._rows) + 1)

    @property
    def _is_watched(self) -> bool:
        return any(row.due_at is not None for row in self._rows)

    # ---------------------------------------------------------------------------------------------------- one step

    def step(self, terms: StepTerms, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Actions[Any]:
        """Do a step that is a function, or return what it returned before."""
        begun = yield from self.begin(terms)
        if begun.done:
            return begun.result
        assert terms.function is not None
        if takes_key(terms.function):
            kwargs = {**kwargs, KEY_ARGUMENT: begun.running.key}
        call = Call(terms.function, args, kwargs, step=begun.running, retry=terms.retry)
        try:
            if terms.here:
                return (yield from self._write_here(terms, begun, call))
            result = yield call
        except Exception as error:
            if (yield from self.fail(terms, begun, error)):
                return begun.result
            # A connection that breaks in COMMIT does not say whether it took place.
            self._rolled_back = terms.here and not isinstance(error, (OperationalError, InterfaceError))
            raise
        return (yield from self.finish(terms, begun, result))

    def begin(self, terms: StepTerms) -> Actions[Begun]:
        """Enter a step. Raises what is wrong with it, and its stored exception."""
        self._check(terms)
        self._names.add(terms.name)
        yield from self.look()
        if self._rows and self._rows[-1].state == StepState.BARRIER:
            self._stop()
        self._open = terms.name
        self._position += 1
        if self._position == 1 and self.journal is not None:
            self._stored_arguments = self._arguments()  # before a body can change them
        running = RunningStep(
            name=terms.name,
            key=self._derive(f"step:{terms.name}"),
            operation="" if self.journal is None else self.journal.run.hex,
            transactional=terms.here,
        )
        begun = yield from self._enter(terms, Begun(position=self._position, running=running))
        if not begun.done:
            reached(terms.name, Border.BEFORE)
            if self._is_lost():  # meanwhile: its start took long to write, and another may have been told to run it
                raise OwnershipLost
        return begun

    def _enter(self, terms: StepTerms, begun: Begun) -> Actions[Begun]:
        """Look at the row of a step until it is clear whether its body runs here."""
        while True:
            row = begun.row = self._row_at(begun.position)
            doing = self._action(row, terms)
            if doing is StepAction.LOST:
                raise OwnershipLost
            if doing is StepAction.RUN:
                runs = self.journal is None or not terms.starts or (yield from self._begin_row(terms, begun))
            elif doing is StepAction.ASK:
                runs = yield from self._ask(terms, begun)
            elif doing is StepAction.REPEAT:
                runs = row.attempt == self._journal.attempt or (yield from self._take(row))
            else:
                return self._known(doing, terms, begun)
            if runs:
                return begun

    def _known(self, doing: StepAction, terms: StepTerms, begun: Begun) -> Begun:
        """Return the stored result of a step. Raises its exception, or why it cannot follow."""
        if doing is StepAction.STOP:
            self._stop()
        if doing is StepAction.CHANGED:
            self._refuse_change(terms, begun.row)
        self._open = None
        if meters.active:
            meters.step(STEP_SKIPPED)
        if doing is StepAction.RAISE:
            raise load_kept(begun.row, terms.keep)
        begun.result, begun.done = load(begun.row, terms), True
        return begun

    def finish(self, terms: StepTerms, begun: Begun, result: Any) -> Actions[Any]:
        """Store the result of a step that calls elsewhere, and return its stored form."""
        try:
            data = terms.results.dump(result)
        except Unstorable as error:
            yield from self._end(terms, begun, StepState.DONE, b"")
            raise StepResultNotStored(
                f"The step {terms.name!r} was carried out, but its result is not stored: {error}"
            ) from error
        yield from self._end(terms, begun, StepState.DONE, data)
        self._open = None
        return begun.result if begun.done else self._loaded(terms, begun, data)

    def fail(self, terms: StepTerms, begun: Begun, error: Exception) -> Actions[bool]:
        """Store the exception that a step raised, if that is its result. Otherwise the step is repeated, or asked about.

        Return whether another owner was faster: then its result counts, and not the exception.
        """
        kept = terms.keep
        if isinstance(error, (OperationHeld, OperationCancelled, OwnershipLost)):
            return False
        if meters.active:
            meters.step(STEP_FAILED)
        if not isinstance(error, kept):
            return False
        try:
            data = dump_error(error, kept)
        except Unstorable as unstorable:
            logger.warning("The exception of the step %s is not stored: %s", terms.name, unstorable)
            data = b""
        yield from self._end(terms, begun, StepState.FAILED, data, named(error))
        self._open = None
        return begun.done

    # ------------------------------------------------------------------------------------------------------- writing

    def _take(self, row: Any) -> Actions[bool]:
        """Take a step over from an earlier attempt. `False`: another owner was faster, so look again."""
        if self._is_lost():
            raise OwnershipLost
        if (yield Query(self._journal.take, row)):
            return True
        yield from self._reload()
        return False

    def _begin_row(self, terms: StepTerms, begun: Begun) -> Actions[bool]:
        """Commit that a step begins. `False`: another owner was faster, so look again."""
        try:
            begun.row = yield Query(
                self._journal.begin, self._entry(terms, begun.running), begun.position, self._watch(begun)
            )
        except PositionTaken:
            yield from self._reload()
            if self._row_at(begun.position) is None:
                raise  # another constraint refused it
            return False
        self._rows.append(begun.row)
        return True

    def _write_here(self, terms: StepTerms, begun: Begun, call: Call) -> Actions[Any]:
        """Run the body and write its row in one transaction. If another owner was faster, nothing was written here."""
        try:
            row, result = yield Query(self._transaction, terms, begun, call)
        except PositionTaken:
            yield from self._reload()
            return (yield from self._others(terms, begun))
        if row is not None:
            self._rows.append(row)
        self._open = None
        reached(terms.name, Border.AFTER)
        if meters.active:
            meters.step(STEP_EXECUTED)
        return result

    def _transaction(self, terms: StepTerms, begun: Begun, call: Call) -> tuple[Any, Any]:
        journal = self.journal
        using = journal.using if journal is not None else self._atomic
        with transaction.atomic(using=using, durable=journal is not None):
            with nullcontext() if journal is None else only_in(journal.using, f"The step {terms.name!r}"):
                data = terms.results.dump(call.run())
            reached(terms.name, Border.DURING)
            row = None
            if journal is not None:
                entry = self._entry(terms, begun.running)
                watch = self._watch(begun)
                row = journal.add(entry, begun.position, StepState.DONE, data, watch, contained=False)
        return row, self._loaded(terms, begun, data)

    def _end(self, terms: StepTerms, begun: Begun, state: StepState, data: bytes, error: str = "") -> Actions[None]:
        """Write how a step ended; `error` is the class of its exception. Another owner's earlier word counts."""
        reached(terms.name, Border.DURING)
        if self.journal is not None:
            yield from self._write_end(terms, begun, state, data, error)
        reached(terms.name, Border.AFTER)
        if meters.active and state is StepState.DONE and not begun.done:
            meters.step(STEP_EXECUTED)

    def _write_end(self, terms: StepTerms, begun: Begun, state: StepState, data: bytes, error: str) -> Actions[None]:
        if begun.row is None:
            try:
                entry = self._entry(terms, begun.running)
                add = partial(self._journal.add, error=error)
                begun.row = yield Query(add, entry, begun.position, state, data, self._watch(begun))
            except PositionTaken:
                yield from self._reload()
                yield from self._others(terms, begun)
            else:
                self._rows.append(begun.row)
        elif not (yield Query(self._journal.end, begun.row, state, data, error)):
            yield from self._reload()
            yield from self._others(terms, begun)

    def _others(self, terms: StepTerms, begun: Begun) -> Actions[Any]:
        """Return what another owner wrote at this position while the body ran."""
        begun = yield from self._enter(terms, begun)
        if begun.done:
            return begun.result
        raise OwnershipLost  # it has begun, and does it now

    def _reload(self) -> Actions[None]:
        self.rows = yield Query(self._journal.load)

    # ------------------------------------------------------------------------------------------------------- reading

    @property
    def _journal(self) -> Journal:
        assert self.journal is not None
        return self.journal

    @property
    def _rows(self) -> list[Any]:
        assert self.rows is not None
        return self.rows

    def _row_at(self, position: int) -> Any:
        rows = self._rows
        return rows[position - 1] if position <= len(rows) else None

    def _action(self, row: Any, terms: StepTerms) -> StepAction:
        attempt = 0 if self.journal is None else self.journal.attempt
        return action(None if row is None else row.row, name=terms.name, repeats=terms.repeats, attempt=attempt)

    def _entry(self, terms: StepTerms, running: RunningStep) -> Entry:
        undone = terms.undo is not None
        return Entry(
            name=terms.name,
            repeats=terms.repeats,
            function=path_of(terms.function),
            undo=path_of(terms.undo),
            ask=path_of(terms.ask),
            key=running.key if undone else "",
            undo_key=self._derive(f"undo:{terms.name}") if undone else "",
        )

    def _watch(self, begun: Begun) -> Watch:
        return Watch(already=self._is_watched, arguments=self._stored_arguments if begun.position == 1 else None)

    def _loaded(self, terms: StepTerms, begun: Begun, data: bytes) -> Any:
        """Return the stored form of a result, as a later attempt will get it."""
        return terms.results.load(data) if begun.row is None or begun.row.result is None else load(begun.row, terms)

    # ---------------------------------------------------------------------------------------------------- refusing

    def _check(self, terms: StepTerms) -> None:
        """Raise `ConfigurationError` for a step that cannot be here, and `OwnershipLost` if another owner may run."""
        if (outer := current_step()) is not None:
            raise ConfigurationError(
                f"The step {terms.name!r} is inside the step {outer.name!r}: steps are not nested. Call it after that."
            )
        if self.given_up:
            self._stop()
        if self._open is not None:
            raise ConfigurationError(
                f"The step {terms.name!r} cannot begin, because {self._open!r} has not ended: it still runs, or it has raised "
                "what is not its result. Let that exception end the attempt, or name it in keep=[…]."
            )
        if terms.name in self._names:
            raise ConfigurationError(f"There are two steps {terms.name!r} in this operation: give each its own name.")
        if self._atomic is not None and not (terms.here and terms.undo is None):
            raise ConfigurationError(
                f'The step {terms.name!r} calls elsewhere, or has an undo, and the guarantee is "atomic": all that the view '
                'writes is rolled back together, and a call elsewhere is not. Type guarantee="lease".'
            )
        self._check_place(f"The step {terms.name!r}")

    def check_giving_up(self) -> None:
        """Raise `ConfigurationError` where an operation cannot give up, and `OwnershipLost` if another owner may run."""
        if self._atomic is not None:
            raise ConfigurationError(
                'undo_steps() under the guarantee "atomic": raise an exception, and all that the view wrote is rolled back.'
            )
        if (outer := current_step()) is not None:
            raise ConfigurationError(f"undo_steps() is inside the step {outer.name!r}: call it after that.")
        self._check_place("undo_steps()")

    def _check_place(self, what: str) -> None:
        """Raise `ConfigurationError` in an open transaction, and `OwnershipLost` if another owner may run."""
        if self.journal is not None and in_transaction(connections[self.journal.using]):
            raise ConfigurationError(
                f"{what} is inside an open transaction, whose rollback would forget it. Call it outside of atomic(), and put "
                "@transaction.non_atomic_requests on the view if ATOMIC_REQUESTS is on."
            )
        if self._is_lost():
            raise OwnershipLost

    def _stop(self) -> NoReturn:
        self.given_up = True
        raise OperationCancelled

    def _hold(self, name: str) -> Actions[NoReturn]:
        """Let a person decide, and keep the rows until then."""
        yield Query(self._journal.hold, HELD_FOR)
        self.held = True
        if meters.active:
            meters.step(STEP_IN_DOUBT)
        raise OperationHeld(
            f"The step {name!r} broke off, and whether it had its effect is not known. A person is finding out."
        )

    def _refuse_change(self, terms: StepTerms, row: Any) -> NoReturn:
        raise StepsChanged(
            f"Step {row.position} of this operation was {row.name!r}, and is {terms.name!r} in the code that resumes it. "
            "Let the code that began it finish, or undo it: manage.py idempotency_complete --undo."
        )

    def _ask(self, terms: StepTerms, begun: Begun) -> Actions[bool]:
        """Ask whether a step that broke off had its effect. `True`: its body runs; `False`: look again."""
        row = begun.row
        ask = terms.ask
        if ask is None:
            return (yield from self._hold(terms.name))
        decision = yield Call(ask, (Asked(terms.name, begun.running.key),))
        match decision:
            case RunAgain():
                return (yield from self._take(row))
            case UseResult(result=result):
                data = terms.results.dump(result)
                if not (yield Query(self._journal.end, row, StepState.DONE, data)):
                    yield from self._reload()
                return False
            case HoldForReview():
                yield from self._hold(terms.name)
        raise ConfigurationError(
            f"ask of the step {terms.name!r} returned {decision!r}. Return asked.run(), asked.found(result) or asked.hold()."
        )
