"""An operation that crashes anywhere, is taken over, gives up, and meets other code, against a
model of the promises.

The model is written from docs/how-to/steps.md. It sees the borders that the page names, and the
books of the provider; it does not read the table.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from contextvars import Context
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from django_idempotency import idempotent_function
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.models import Step
from django_idempotency.engine.borders import Border, watched_by
from django_idempotency.errors import (
    OperationCancelled,
    OutcomeUnknown,
    OwnershipLost,
    StepsChanged,
)
from django_idempotency.testing.crashing import Interrupted
from testproject.payments.models import Effect

from ...functions.helpers import Clock
from . import work
from .test_completing import complete, give_up
from .test_resuming import operation
from .work import PROVIDER, Declined

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

#: The first letter of a step's name says what it is: it writes here, calls elsewhere, or calls at
#: most once. A capital letter: it has an undo.
LETTERS = "hHcCoO"
NAMES = [f"{letter}{number}" for number in (1, 2) for letter in LETTERS]
CARDS = count()


def is_here(name: str) -> bool:
    return name[0] in "hH"


def has_undo(name: str) -> bool:
    return name[0].isupper()


def starts(name: str) -> bool:
    """Is its start committed before its body runs?"""
    return not is_here(name) and (has_undo(name) or name[0] in "oO")


@dataclass(frozen=True)
class Plan:
    """What happens to one attempt."""

    #: The step that is declined, which is its result, and makes the operation give up.
    declined: str = ""
    #: The number of steps after which the operation is declined.
    gives_up_after: int | None = None
    #: The step that has its effect and then raises what is no result.
    fails: str = ""
    #: Where the process dies, by step or undo.
    dies: tuple[str, Border] | None = None
    #: Where its lease ends, and another attempt runs.
    is_overtaken: tuple[str, Border] | None = None


@dataclass
class Model:
    """One operation."""

    #: The steps whose ends are committed, in order: name → did it have its effect?
    done: dict[str, bool] = field(default_factory=dict)
    #: The step whose start is committed, and not its end.
    begun: str = ""
    given_up: bool = False
    #: Was it left by a crash, so that the command may call it again?
    crashed: bool = False
    #: What each call gets from now on.
    end: Any = None

    def fits(self, code: list[str]) -> bool:
        """Does this code do the steps that were done or begun, in this order?"""
        journal = [*self.done, *([self.begun] if self.begun else [])]
        return all(mine == theirs for mine, theirs in zip(code, journal, strict=False))


class World:
    """What the functions of this module read."""

    code: list[str]
    card: str
    plan: Plan
    #: The bodies that have begun in this attempt.
    bodies: list[str]
    #: The steps that were declined.
    declined: set[str]


WORLD = World()


def write(card: str, name: str) -> list[str]:
    Effect.objects.create(label=name, idempotency_key=card)
    return told(card, name, declined=WORLD.plan.declined == name)


def call(card: str, name: str, *, idempotency_key: str) -> list[str]:
    declined = WORLD.plan.declined == name and idempotency_key not in PROVIDER.effects
    if not declined:
        PROVIDER.do(name, idempotency_key)
    return told(card, name, declined=declined)


def told(card: str, name: str, *, declined: bool) -> list[str]:
    """Let what is planned happen at the end of a body."""
    WORLD.bodies.append(name)
    WORLD.declined.discard(name)  # an attempt that was declined before may have died with that
    if declined:
        WORLD.declined.add(name)
        raise Declined
    if WORLD.plan.fails == name:
        raise TimeoutError
    return [card, name]


def write_back(done: list[str]) -> None:
    Effect.objects.create(label=f"undo {done[1]}", idempotency_key=done[0])


def call_back(done: list[str], *, idempotency_key: str) -> None:
    PROVIDER.do(f"undo {done[1]}", idempotency_key)


def find(asked: Any) -> Any:
    """Tell the truth."""
    return asked.found([WORLD.card, asked.name]) if asked.key in PROVIDER.effects else asked.run()


@idempotent_function(key="card", key_prefix="sequence", extensions=[UndoOn(Declined)])
def sequence(card: str) -> list[Any]:
    results, run = [], operation()
    for number, name in enumerate(WORLD.code):
        if WORLD.plan.gives_up_after == number:
            raise Declined
        terms: dict[str, Any] = {"keep": [Declined]}
        if has_undo(name):
            terms["undo"] = write_back if is_here(name) else call_back
        if starts(name):
            terms["ask"] = find
        if name[0] in "oO":
            terms["at"] = "most_once"
        results.append(run.step(name, write if is_here(name) else call, card, name, **terms))
    if WORLD.plan.gives_up_after is not None:
        raise Declined
    return results


class Operations(RuleBasedStateMachine):
    """The rules are what may happen to one operation; the invariants are what is promised of it."""

    clock: Clock

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        work.reset()
        Step.objects.all().delete()
        Effect.objects.all().delete()
        WORLD.card, WORLD.plan, WORLD.bodies = f"card-{next(CARDS)}", Plan(), []
        WORLD.declined = set()
        self.watching = ExitStack()
        self.watching.enter_context(watched_by(self.see))

    # ------------------------------------------------------------------------------ what may happen

    @initialize(code=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    def deploy_first(self, code: list[str]) -> None:
        WORLD.code = code

    @rule(name=st.sampled_from(NAMES), at=st.integers(0, 4))
    def add_a_step(self, name: str, at: int) -> None:
        if name not in WORLD.code:
            WORLD.code = [*WORLD.code[:at], name, *WORLD.code[at:]]

    @rule(at=st.integers(0, 4))
    def remove_a_step(self, at: int) -> None:
        if len(WORLD.code) > 1:
            WORLD.code = [*WORLD.code[:at], *WORLD.code[at + 1 :]]

    @rule(at=st.integers(0, 4), name=st.sampled_from(NAMES))
    def rename_a_step(self, at: int, name: str) -> None:
        if name not in WORLD.code:
            WORLD.code = [name if number == at else each for number, each in enumerate(WORLD.code)]

    @rule()
    def turn_the_order(self) -> None:
        WORLD.code = WORLD.code[::-1]

    @rule(
        declined=st.none() | st.integers(0, 4),
        gives_up_after=st.none() | st.integers(0, 4),
        fails=st.none() | st.integers(0, 4),
        dies=st.none() | st.tuples(st.booleans(), st.integers(0, 4), st.sampled_from(Border)),
    )
    def attempt(self, declined: Any, gives_up_after: Any, fails: Any, dies: Any) -> None:
        self.run(
            Plan(
                declined=self.name(declined),
                gives_up_after=gives_up_after,
                fails=self.name(fails),
                dies=None if dies is None else ("undo " * dies[0] + self.name(dies[1]), dies[2]),
            )
        )

    @rule(
        at=st.integers(0, 4),
        border=st.sampled_from(Border),
        gives_up_after=st.none() | st.integers(0, 4),
    )
    def be_overtaken(self, at: int, border: Border, gives_up_after: Any) -> None:
        name = self.name(at)
        if not (is_here(name) and border is Border.DURING):  # that is inside its transaction
            self.overtaking = Plan(gives_up_after=gives_up_after)
            self.run(Plan(is_overtaken=(name, border)))

    @rule(undo=st.booleans())
    def command(self, undo: bool) -> None:
        before = replace(self.model, done=dict(self.model.done))
        if (before.done or before.begun) and before.end is None and not before.given_up:
            if before.crashed and before.fits(WORLD.code):
                self.model.end = ("returned", self.expected())
            elif before.crashed:
                self.model.crashed = False
            elif undo:
                self.model.given_up, self.model.end = True, OperationCancelled
        if undo and self.model.given_up:
            give_up()
        complete()
        if self.model.given_up:
            self.assert_undone()

    # ---------------------------------------------------------------------------------- one attempt

    def name(self, at: int | None) -> str:
        return WORLD.code[at % len(WORLD.code)] if at is not None else ""

    def expected(self) -> list[list[str]]:
        return [[WORLD.card, name] for name in WORLD.code]

    def run(self, plan: Plan) -> Any:
        """Let one attempt run, and hold what it does against the promises."""
        before = replace(self.model, done=dict(self.model.done))
        outer, WORLD.plan, WORLD.bodies = (WORLD.plan, WORLD.bodies), plan, []
        died = False
        got: Any
        try:
            got = ("returned", sequence(WORLD.card))
        except Interrupted:
            got = died = True
            self.clock.go(31)
        except (
            Declined,
            OperationCancelled,
            OutcomeUnknown,
            OwnershipLost,
            StepsChanged,
            TimeoutError,
        ) as error:
            got = type(error)
        finally:
            bodies, (WORLD.plan, WORLD.bodies) = WORLD.bodies, outer
        self.judge(before, plan, got, bodies, died=died)
        return got

    def judge(self, before: Model, plan: Plan, got: Any, bodies: list[str], *, died: bool) -> None:
        model = self.model
        if before.end is not None:  # a replay
            assert (got, bodies) == (before.end, [])
        elif plan.is_overtaken is not None and plan.is_overtaken == self.overtaken:
            # Without another step it finds out as it ends, and says so if what it has done may be
            # undone.
            late = (
                OwnershipLost,
                OperationCancelled,
                OutcomeUnknown,
                model.end,
                ("returned", self.expected()),
            )
            assert got in late
        elif died:
            model.crashed = True
        elif got is TimeoutError:
            assert bodies[-1] == plan.fails
            model.crashed = False
        elif got is StepsChanged:
            assert not before.fits(WORLD.code)
            assert bodies == []
            model.crashed = False
        elif got is Declined:
            failed = any(not effect for effect in model.done.values())
            assert plan.gives_up_after is not None or plan.declined or failed
            model.crashed = False
            model.given_up, model.end = bool(model.done or model.begun), got
        elif got is OperationCancelled:
            assert before.given_up
            assert bodies == []
            model.end = got
        else:
            assert got == ("returned", self.expected())
            assert before.fits(WORLD.code)
            assert not before.given_up
            assert plan.gives_up_after is None
            model.end = got
        self.overtaken = None
        # What is done is not done again.
        assert not set(before.done) & set(bodies)
        if model.given_up and not died:
            self.assert_undone()

    overtaken: Any = None
    overtaking = Plan()

    def see(self, name: str, border: Border) -> None:
        """Learn what is committed, and let what is planned happen."""
        model, plan = self.model, WORLD.plan
        if name.startswith("undo "):
            model.given_up = True
        elif border is Border.BEFORE and starts(name):
            model.begun = name
        elif border is Border.AFTER:
            model.done[name], model.begun = name not in WORLD.declined, ""
        if plan.dies == (name, border):
            raise Interrupted
        if plan.is_overtaken == (name, border):
            late = operation()
            self.clock.go(31)
            Context().run(self.run, self.overtaking)  # as another process
            self.overtaken = (name, border)
            late._steps.is_lost = lambda: True

    # ----------------------------------------------------------------------------- what is promised

    def counted(self) -> Counter[str]:
        """Count all effects, here and elsewhere."""
        return Counter(Effect.objects.values_list("label", flat=True)) + Counter(
            effect.rpartition("-")[0] for effect in PROVIDER.effects.values()
        )

    @invariant()
    def nothing_happens_twice(self) -> None:
        counted = self.counted()
        assert not counted or max(counted.values()) == 1
        calls = Counter(name for name, _ in PROVIDER.calls)
        assert all(calls[name] <= 1 for name in NAMES if name[0] in "oO")
        undone = [name.removeprefix("undo ") for name in counted if name.startswith("undo ")]
        assert all(counted[name] == 1 for name in undone)
        assert not undone or self.model.given_up
        assert all(counted[name] == effect for name, effect in self.model.done.items())

    def assert_undone(self) -> None:
        """What was done and has an undo is undone."""
        counted = self.counted()
        for name in NAMES:
            if has_undo(name) and (name in self.model.done or name == self.model.begun):
                assert counted[name] == counted[f"undo {name}"]

    def teardown(self) -> None:
        try:
            if hasattr(WORLD, "code"):
                self.end()
        finally:
            self.watching.close()

    def end(self) -> None:
        """Whatever has happened, it can be ended: by a retry, or by the command if the code has
        changed.
        """
        got = self.run(Plan())
        if got is StepsChanged:
            self.command(undo=True)
            got = self.run(Plan())
        assert self.model.end == got
        if self.model.given_up:
            self.assert_undone()
        elif isinstance(got, tuple):
            assert all(self.counted()[name] == 1 for _, name in got[1])


def test_whatever_happens(clock: Clock) -> None:
    """Each step has one effect, each undo belongs to one, and every operation ends."""
    Operations.clock = clock
    run_state_machine_as_test(
        Operations,
        settings=settings(
            max_examples=100,
            stateful_step_count=8,
            derandomize=True,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
