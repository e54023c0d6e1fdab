"""`idempotency_resume operations`, killed at each statement and each border: run again, it ends what it
began, and nothing twice.
"""

from __future__ import annotations

import io
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.utils import timezone

from django_idempotency import idempotent_function
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.models import Step
from django_idempotency.contrib.steps.rules import StepState
from django_idempotency.engine.borders import Border, watched_by
from django_idempotency.errors import OperationCancelled
from django_idempotency.testing.clock import end_leases
from django_idempotency.testing.crashing import CrashPoint, run_until

from ..support.provider import Provider
from .plans import state, until
from .test_steps import SoldOut, book, book_in_vain, provider, saga, written

__all__ = ["provider"]

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

ENDS = (SoldOut, OperationCancelled, TimeoutError)
DONE = Counter(["reserve", "pay"])
UNDONE = Counter(["reserve", "pay", "undo reserve", "undo pay"])


@idempotent_function(key="card", guarantee="lease", extensions=[UndoOn(SoldOut)])
def book_badly(card: str) -> list[Any]:
    """Fail behind all steps: the caller knows, and never calls again."""
    saga(card)
    raise TimeoutError


def command(card: str) -> None:
    """Run the command. Only one operation is due."""
    call_command("idempotency_resume", "operations", verbosity=0)


def complete(card: str) -> None:
    """Run the command, and let a person give up what waits for its client."""
    command(card)
    waiting = Step.objects.exclude(due_at=None).exclude(state=StepState.BARRIER)
    for record in set(waiting.values_list("record", flat=True)):
        with suppress(CommandError):  # another worker is at it
            call_command(
                "idempotency_resume", "operations", "--undo", str(record), stdout=io.StringIO()
            )


def let_time_pass() -> None:
    """End the leases of the dead, and let the command look again."""
    end_leases()
    Step.objects.exclude(due_at=None).update(due_at=timezone.now() - timedelta(seconds=1))


class Halves:
    """Operations that died at one place."""

    def __init__(self, act: Callable[[str], Any], name: str, when: str) -> None:
        self._act, self._number = act, None
        points = run_until(act, uuid4().hex, ENDS) or []
        Step.objects.all().update(due_at=None)
        self._number = next(
            (point.number for point in points if (point.name, point.when) == (name, when)), None
        )

    def __next__(self) -> str:
        """Return the card of a new one."""
        card = uuid4().hex
        run_until(self._act, card, ENDS, self._number)
        let_time_pass()
        return card


def is_worth_it(point: CrashPoint) -> bool:
    """Is this place another one than the one before it? Servers are spared the statements."""
    if point.at != "statement":
        return True
    reads = point.name.startswith(("SELECT", "SAVEPOINT", "RELEASE"))
    return connection.vendor == "sqlite" and not (reads and point.when == "after")


def deaths(halves: Halves) -> Iterator[tuple[CrashPoint, str]]:
    """Kill the command at each point of its way through a half-done operation, and run it again."""
    for point in filter(is_worth_it, run_until(complete, next(halves), ()) or ()):
        card = next(halves)
        assert run_until(complete, card, (), point.number) is None, point
        let_time_pass()
        complete(card)
        yield point, card
        assert not Step.objects.exclude(due_at=None).exists(), point


def test_finishing(provider: Provider) -> None:
    """A function whose process died is finished: each step has one effect, and what is at most once
    has one call.
    """
    seen = 0
    for point, card in deaths(Halves(book, "reserve", "during")):
        seen += 1
        assert (written(card), provider.effects(card)) == ({"order": 1}, DONE), point
        assert provider.notes(card)["pay"] == 1, point
        before = provider.notes(card)
        assert book(card)[0] == card
        assert provider.notes(card) == before, point
    assert seen > 5


@pytest.mark.parametrize(
    ("act", "name", "when"),
    [
        pytest.param(book_in_vain, "undo pay", "during", id="continue an undo"),
        pytest.param(book_badly, "", "", id="give up"),
    ],
)
def test_undoing(provider: Provider, act: Any, name: str, when: str) -> None:
    """What is undone is undone once, and under one key."""
    seen = 0
    for point, card in deaths(Halves(act, name, when)):
        seen += 1
        assert (written(card), provider.effects(card)) == ({"order": 1, "undo order": 1}, UNDONE), (
            point
        )
        assert provider.notes(card)["pay"] == 1, point
        before = provider.notes(card)
        with pytest.raises(OperationCancelled):
            act(card)
        assert provider.notes(card) == before, point
    assert seen > 5


@pytest.mark.sqlite
def test_noting_the_end(provider: Provider) -> None:
    """A success that its own process could not note is noted by the command, once: it is not done
    again, and not undone.
    """
    halves, table = Halves(book, "", ""), Step._meta.db_table
    points = run_until(book, uuid4().hex, ENDS) or []
    notes = [
        point.number for point in points if point.name.startswith("INSERT") and table in point.name
    ]
    halves._number = notes[-2]  # before and after the last one
    Step.objects.all().update(due_at=None)
    for point, card in deaths(halves):
        assert (written(card), provider.effects(card)) == ({"order": 1}, DONE), point
        noted = Step.objects.filter(state=StepState.ENDED)
        assert noted.count() == Step.objects.values("run").distinct().count(), point
        before = provider.notes(card)
        assert book(card)[0] == card
        assert provider.notes(card) == before, point


def start(act: Callable[[str], Any], card: str) -> int:
    """Call it in another process, and return its id."""
    connections.close_all()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act(card)
            code = 0
        finally:
            os._exit(code)
    return child


def ended(child: int) -> int:
    """Return the exit code of a process."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("act", [book, book_badly])
def test_two_workers_at_once(provider: Provider, act: Any) -> None:
    """Whichever takes the operation ends it, and the other finds nothing to do."""
    halves = Halves(act, *(("reserve", "during") if act is book else ("", "")))
    for _ in range(3):
        card = next(halves)
        # No person here, who may be faster than a worker that has not claimed the record yet: then
        # it is undone.
        worker = command if act is book else complete
        assert [ended(child) for child in [start(worker, card), start(worker, card)]] == [0, 0]
        assert provider.effects(card) == (DONE if act is book else UNDONE)
        assert written(card) == ({"order": 1} if act is book else {"order": 1, "undo order": 1})
        assert provider.notes(card)["pay"] == 1
        assert not Step.objects.exclude(due_at=None).exists()


# ----------------------------------------------------------------------- stopped rather than killed


def stopping(act: Callable[[str], Any], name: str, border: Border) -> Callable[[str], Any]:
    """Return what calls it and stops its process there (SIGSTOP), once."""

    def stop(at: str, where: Border) -> None:
        if (at, where) == (name, border) and not stopped:
            stopped.append(at)
            os.kill(os.getpid(), signal.SIGSTOP)

    def stops(card: str) -> Any:
        with watched_by(stop):
            return act(card)

    stopped: list[str] = []
    return stops


def test_a_worker_that_is_stopped(provider: Provider) -> None:
    """Another worker undoes what it was undoing.

    When it goes on, each undo has one effect, and what writes here runs once.
    """
    for name, border in (
        ("undo reserve", Border.BEFORE),
        ("undo order", Border.BEFORE),
        ("undo order", Border.AFTER),
    ):
        halves = Halves(book_badly, "", "")
        card = next(halves)
        child = start(stopping(complete, name, border), card)
        try:
            until(lambda child=child: state(child).startswith("T"), "it is stopped")  # type: ignore[misc]
            let_time_pass()
            complete(card)
        finally:
            os.kill(child, signal.SIGCONT)
        assert ended(child) == 0
        assert written(card) == {"order": 1, "undo order": 1}, (name, border)
        assert provider.effects(card) == UNDONE, (name, border)
