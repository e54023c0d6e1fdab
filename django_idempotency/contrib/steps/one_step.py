"""One step: what it finds in the journal, whether its body runs, and what it writes there.

Sync and async.
"""

from __future__ import annotations

import logging
from typing import Any, NoReturn

from django.db import transaction

from ...core.failures import named
from ...core.serialization.results import Unstorable
from ...engine.borders import Border, reached
from ...errors import (
    ConfigurationError,
    OperationCancelled,
    OperationHeld,
    OwnershipLost,
    StepResultNotStored,
    StepsChanged,
)
from ...functions.kept_exceptions import dump_error
from ...runtime.current_step import RunningStep
from ...runtime.decisions import HoldForReview, RunAgain, UseResult
from ...runtime.handle import HELD_FOR
from . import Asked
from .actions import Actions, Call, Query, only_in
from .journal import STEPS, PositionTaken, load, load_kept
from .models import Step
from .rules import StepAction, StepState, action
from .running import Steps
from .terms import KEY_ARGUMENT, StepTerms, path_of, takes_key

logger = logging.getLogger("django_idempotency")


class OneStep:
    """A step of an operation."""

    #: What its body runs as, once it has begun.
    running: RunningStep
    #: Its row, if one is written.
    row: Any = None
    #: Is it done, so that its body must not run? Then this is what it returned.
    done: bool = False
    result: Any = None
    #: The row of one that writes here: it is written last, so then COMMIT is sent, and unless that
    #: responds nobody knows.
    written: Any = None

    def __init__(self, steps: Steps, terms: StepTerms) -> None:
        self.steps = steps
        self.terms = terms
        #: 0: it has not begun.
        self.position = 0

    def do(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Actions[Any]:
        """Do a step that is a function, or return what it returned before."""
        yield from self.begin()
        if self.done:
            return self.result
        terms = self.terms
        assert terms.function is not None
        if takes_key(terms.function):
            kwargs = {**kwargs, KEY_ARGUMENT: self.running.key}
        call = Call(terms.function, args, kwargs, step=self.running, retry=terms.retry)
        if terms.is_here:
            return (yield from self._write_here(call))
        try:
            result = yield call
        except BaseException as error:
            if (yield from self.fail(error)):
                return self.result
            raise
        return (yield from self.finish(result))

    def begin(self) -> Actions[None]:
        """Enter the step. Raises what is wrong with it, and its stored exception."""
        steps = self.steps
        name = self.terms.name
        self.position = yield from steps.next_position(self.terms)
        self.running = RunningStep(
            name=name,
            key=steps.derive(f"step:{name}"),
            operation="" if steps.journal is None else steps.journal.of.run.hex,
            transactional=self.terms.is_here,
            may_send=None if steps.journal is None else steps.journal.may_send,
        )
        yield from self._enter()
        if not self.done:
            reached(name, Border.BEFORE)
            # Meanwhile: its start took long to write, and another may have been told to run it.
            if steps.is_lost():
                raise OwnershipLost

    def finish(self, result: Any) -> Actions[Any]:
        """Store the result of a step that calls elsewhere, and return its stored form."""
        try:
            data = self.terms.results.dump(result)
        except Unstorable as error:
            yield from self._end(StepState.DONE, b"")
            raise StepResultNotStored(
                f"The step {self.terms.name!r} was carried out, but its result is not "
                f"stored: {error}"
            ) from error
        yield from self._end(StepState.DONE, data)
        self.steps.open = None
        return self.result if self.done else self._loaded(data)

    def fail(self, error: BaseException) -> Actions[bool]:
        """Store the exception that the step raised, if that is its result.

        Otherwise it is repeated, or asked about.

        Return whether another owner was faster: then its result counts, and not the exception.
        """
        kept = self.terms.keep
        if not isinstance(error, Exception):
            self.steps.cut = self.terms.name
            return False
        if isinstance(error, (OperationHeld, OperationCancelled, OwnershipLost)):
            return False
        STEPS.record(outcome="failed")
        if not isinstance(error, kept):
            return False
        try:
            data = dump_error(error, kept)
        except Unstorable as unstorable:
            logger.warning(
                "The exception of the step %s is not stored: %s", self.terms.name, unstorable
            )
            data = b""
        yield from self._end(StepState.FAILED, data, named(error))
        self.steps.open = None
        return self.done

    # ------------------------------------------------------------------------------------ its start

    def _enter(self) -> Actions[None]:
        """Look at the row until it is clear whether the body runs here, or the step is `done`."""
        terms = self.terms
        steps = self.steps
        attempt = 0 if steps.journal is None else steps.journal.of.attempt
        runs = False
        while not runs:
            row = self.row = steps.row_at(self.position)
            known = steps.remembers(terms, self.position)
            doing = action(
                row, name=terms.name, repeats=terms.repeats, attempt=attempt, remembered=known
            )
            if doing is StepAction.LOST:
                raise OwnershipLost
            if doing is StepAction.RUN:
                runs = steps.journal is None or not terms.starts or (yield from self._start())
            elif doing is StepAction.ASK:
                runs = yield from self._ask()
            elif doing is StepAction.HOLD:
                yield from self._hold()
            elif doing is StepAction.REPEAT:
                runs = row.attempt == attempt or (yield from self._take())
            else:
                self._know(doing)
                return

    def _start(self) -> Actions[bool]:
        """Commit that the step begins. `False`: another owner was faster, so look again."""
        self.row = yield from self.steps.insert(self._row(StepState.STARTED))
        return self.row is not None

    def _take(self, *, anew: bool = False) -> Actions[bool]:
        """Take the step over from an earlier attempt.

        `False`: another owner was faster, so look again.
        """
        if self.steps.is_lost():
            raise OwnershipLost
        return (yield from self.steps.change(self.steps.noted.take, self.row, anew))

    def _ask(self) -> Actions[bool]:
        """Ask whether the step, which broke off, had its effect.

        `True`: its body runs; `False`: look again.
        """
        decision: Any = HoldForReview()
        if self.terms.ask is not None:
            decision = yield Call(self.terms.ask, (Asked(self.terms.name, self.running.key),))
        match decision:
            case RunAgain():
                return (yield from self._take(anew=True))
            case UseResult(result=result):
                data = self.terms.results.dump(result)
                yield from self.steps.change(self.steps.noted.end, self.row, StepState.DONE, data)
                return False
            case HoldForReview():
                yield from self._hold()
        raise ConfigurationError(
            f"ask of the step {self.terms.name!r} returned {decision!r}. Return "
            "asked.run(), asked.found(result) or asked.hold()."
        )

    def _hold(self) -> Actions[NoReturn]:
        """Leave the operation to a person."""
        yield Query(self.steps.noted.hold, HELD_FOR)
        self.steps.held = True
        STEPS.record(outcome="in_doubt")
        raise OperationHeld(
            f"The step {self.terms.name!r} broke off, and whether it had its effect is not "
            "known. A person is finding out."
        )

    def _know(self, doing: StepAction) -> None:
        """Load the stored result. Raises the stored exception, or why the step cannot follow."""
        row = self.row
        if doing is StepAction.STOP:
            self.steps.stop()
        if doing is StepAction.CHANGED:
            raise StepsChanged(
                f"Step {row.position} of this operation was {row.name!r}, and is "
                f"{self.terms.name!r} in the code that resumes "
                "it. Let the code that began it finish, or undo it: manage.py "
                "idempotency_resume operations --undo REF."
            )
        self.steps.open = None
        STEPS.record(outcome="skipped")
        if doing is StepAction.RAISE:
            raise load_kept(row, self.terms.keep)
        self.result = load(row, self.terms)
        self.done = True

    # -------------------------------------------------------------------------------------- its end

    def _write_here(self, call: Call) -> Actions[Any]:
        """Run the body and write the row in one transaction.

        If another owner was faster, nothing was written here.
        """
        try:
            result = yield Query(self._transaction, call)
        except PositionTaken:
            yield from self.steps.reload()
            yield from self._use_other()
            return self.result
        except BaseException as error:
            if self.steps.open is None:
                raise  # by an on_commit callback of the body: it is committed
            if self.written is not None:
                self.steps.forget()  # who must know asks the database
            elif (yield from self.fail(error)):
                return self.result
            self.steps.rolled_back = self.written is None and self.steps.cut is None
            raise
        self._committed()  # in a test's transaction, whose callbacks do not run
        reached(self.terms.name, Border.AFTER)
        return result

    def _transaction(self, call: Call) -> Any:
        """Return the stored form of the result."""
        terms = self.terms
        journal = self.steps.journal
        using = self.steps.atomic if journal is None else journal.using
        with transaction.atomic(using=using, durable=journal is not None):
            if journal is None:
                data = terms.results.dump(call.run())
                reached(terms.name, Border.DURING)
            else:
                # The first one, before those of the body.
                transaction.on_commit(self._committed, using=using)
                with only_in(journal.using, f"The step {terms.name!r}"):
                    data = terms.results.dump(call.run())
                reached(terms.name, Border.DURING)
                self.written = self.steps.write(self._row(StepState.DONE, data), contained=False)
        return self._loaded(data)

    def _committed(self) -> None:
        """Note that what the step wrote is committed: the connection says so."""
        if self.steps.open != self.terms.name:
            return
        self.steps.open = None
        if self.written is not None:
            self.steps.append(self.written)
        STEPS.record(outcome="executed")

    def _end(self, state: StepState, data: bytes, error: str = "") -> Actions[None]:
        """Write how the step ended; `error` is the class of its exception.

        Another owner's earlier word counts.
        """
        reached(self.terms.name, Border.DURING)
        if self.steps.journal is not None:
            if self.row is None:
                self.row = yield from self.steps.insert(self._row(state, data, error))
                written = self.row is not None
            else:
                written = yield from self.steps.change(
                    self.steps.noted.end, self.row, state, data, error
                )
            if not written:
                yield from self._use_other()
        reached(self.terms.name, Border.AFTER)
        if state is StepState.DONE and not self.done:
            STEPS.record(outcome="executed")

    def _use_other(self) -> Actions[None]:
        """Get the result that another owner wrote while the body ran."""
        yield from self._enter()
        if not self.done:
            raise OwnershipLost  # it has begun, and does it now

    def _row(self, state: StepState, result: bytes | None = None, error: str = "") -> Step:
        """Return its row, before it is written."""
        terms = self.terms
        undone = self.terms.undo is not None
        return Step(
            position=self.position,
            name=terms.name,
            state=state,
            function=path_of(terms.function),
            undo=path_of(terms.undo),
            ask=path_of(terms.ask),
            key=self.running.key if undone else "",
            undo_key=self.steps.derive(f"undo:{terms.name}") if undone else "",
            arguments=self.steps.arguments if self.position == 1 else None,
            result=result,
            error=error,
        )

    def _loaded(self, data: bytes) -> Any:
        """Return the stored form of a result, as a later attempt will get it."""
        row = self.row
        terms = self.terms
        return terms.results.load(data) if row is None or row.result is None else load(row, terms)
