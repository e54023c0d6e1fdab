"""Attempts that break off: interrupt_at() raises at one step, and crash_matrix() kills a process at
each statement and step.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal
from uuid import uuid4

from django.db import connections

from ..engine.borders import Border, watched_by
from ..errors import InProgress, LostRace
from .calling import CallResult, refuse_transaction, refused_database
from .clock import end_leases


class Interrupted(BaseException):
    """The attempt breaks off here. No `except Exception` catches it, so the record is left as by a
    crash.
    """


@contextmanager
def interrupt_at(
    step: str, /, *, when: Literal["before", "during", "after"] = "during"
) -> Iterator[None]:
    """Raise `Interrupted` wherever an attempt reaches that place of the step, in every thread,
    until the block ends.

    `when` is "before" (its body has not begun; its start is committed, if it has one), "during"
    (its body has ended, and its result is not stored) or "after" (its result is committed). "undo
    charge" is the undo of the step "charge".

    Raises `ValueError` for another `when`, and `AssertionError` at the end of the block if nothing
    came to the place.
    """
    try:
        border = Border(when)
    except ValueError:
        raise ValueError(f'when is "before", "during" or "after", not {when!r}.') from None
    others: list[str] = []
    hits = 0

    def watch(name: str, place: Border) -> None:
        nonlocal hits
        if name == step and place is border:
            hits += 1
            raise Interrupted(f"{border} the step {step!r}")
        others.append(f"{place} {name!r}")

    with watched_by(watch):
        yield
    if not hits:
        seen = f"These were: {', '.join(dict.fromkeys(others))}." if others else "No step was."
        raise AssertionError(f"{border} the step {step!r}: this place was not reached. {seen}")


# ------------------------------------------------------------------------------------- crash points

#: The verb of a statement, and its table.
_SUBJECT = re.compile(
    r"\s*(\w+)(?:(?:(?<=UPDATE)|.*?\b(?:INTO|FROM)\b)\s+[\"`]?(\w+))?", re.IGNORECASE | re.DOTALL
)

#: The exceptions that are a result.
Results = tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPoint:
    """Where a process is killed. Equal points of two runs are the same place."""

    #: Counts from 1, in the order in which a run passes the points.
    number: int
    at: Literal["statement", "step", "end"]
    #: "during" is for steps only.
    when: Literal["before", "during", "after"]
    #: The verb and table of a statement, or the name of a step; an undo is "undo " and that name.
    name: str = ""

    def __str__(self) -> str:
        place = "at the end" if self.at == "end" else f"{self.when} the {self.at} {self.name!r}"
        return f"point {self.number}, {place}"


def run_until(
    act: Callable[[str], Any], key: str, raises: Results, last: int | None = None
) -> list[CrashPoint] | None:
    """Call it in a forked process.

    Return the points that it passed; `None`: it was killed at the last one.
    """
    used = [each.alias for each in connections.all(initialized_only=True)]
    connections.close_all()  # two processes must not share one
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Threads of this process do not exist in the child, which resets what the package has in
        # them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        report = _report(act, key, raises, last, used)
        os.write(writing, json.dumps(report).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGKILL and last is not None:
        return None
    if code != 0:
        raise AssertionError(f"The process ended with {code}.")
    points, error = json.loads(said)
    if error:
        raise AssertionError(f"The run failed.\n{error}")
    return [CrashPoint(**point) for point in points]


def _report(
    act: Callable[[str], Any], key: str, raises: Results, last: int | None, used: list[str]
) -> tuple[list[dict[str, Any]], str]:
    """Call it and pass its points.

    Return them, and the traceback of an exception that is not a result.
    """
    points: list[CrashPoint] = []

    def passing(at: Any, when: Any, name: str = "") -> None:
        points.append(CrashPoint(number=len(points) + 1, at=at, when=when, name=name))
        if len(points) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def executed(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        name = _named(sql)
        passing("statement", "before", name)
        result = execute(sql, params, many, context)
        passing("statement", "after", name)
        return result

    def at_border(name: str, border: Border) -> None:
        passing("step", border.value, name)

    try:
        for alias in used:
            connections[alias].ensure_connection()
        with ExitStack() as stack:
            for alias in connections:
                stack.enter_context(connections[alias].execute_wrapper(executed))
            stack.enter_context(watched_by(at_border))
            with suppress(*raises):
                act(key)
        passing("end", "after")
    except BaseException:  # noqa: BLE001 - the parent raises it
        return [], traceback.format_exc()
    return [asdict(point) for point in points], ""


def _named(sql: str) -> str:
    """Return the verb and the table of a statement."""
    match = _SUBJECT.match(sql)
    return " ".join(filter(None, match.groups())) if match else ""


# --------------------------------------------------------------------------------------- the matrix

#: How often a retry that is busy comes again, and the pause (seconds): a server may not have
#: noticed yet who is dead.
TRIES = 40
PAUSE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """One process that was killed, and the retry that finished its work."""

    point: CrashPoint
    #: What was given to the calls: a new text at each point.
    key: str
    #: What the retry returned, or the exception that is a result.
    result: Any


def crash_matrix(
    act: Callable[[str], Any],
    /,
    *,
    raises: type[Exception] | tuple[type[Exception], ...] = (),
    deaths: int = 1,
    only: Callable[[CrashPoint], bool] | None = None,
    wait: Callable[[], Any] = end_leases,
) -> Iterator[Crash]:
    """Kill a process at each point of `act(key)`, let a retry finish it, and yield what there is to
    check.

    A first run lists the points: before and after each statement of its thread on any database;
    before, during and after each step and undo; and the end, where nobody has the result yet. Then,
    for each point, a forked process calls `act` with a new key and is killed there by SIGKILL,
    `wait()` lets the leases of the dead end, and `act` is called again in this process until it is
    not busy. `deaths` is the number of processes that are killed in a row: each later one is a
    retry, and is killed at the point of the same number on its own way, if it comes that far.
    `only(point)` says at which points.

    An exception listed in `raises` is a result. Raises `AssertionError` with the point if a retry
    raises another one or stays busy, and if two runs differ; `RuntimeError` where it cannot work:
    without `os.fork`, inside a transaction, or with a database in memory.
    """
    _refuse()
    raises = raises if isinstance(raises, tuple) else (raises,)
    for point in filter(only, run_until(act, _new_key(), raises) or ()):
        key = _new_key()
        for death in range(deaths):
            if run_until(act, key, raises, point.number) is not None and death == 0:
                raise AssertionError(f"{point}: it was not reached, so two runs differ.")
            wait()
        yield Crash(point=point, key=key, result=_finish(act, key, raises, wait, point))


def _new_key() -> str:
    return f"crash-{uuid4().hex}"


def _refuse() -> None:
    """Raise `RuntimeError` where a forked process could not see what this one has written."""
    if not hasattr(os, "fork"):
        raise RuntimeError(
            "This system has no os.fork(), with which crash_matrix() starts what it kills."
        )
    refuse_transaction(who="processes")
    if why := refused_database(who="Processes"):
        raise RuntimeError(why)


def _finish(
    act: Callable[[str], Any], key: str, raises: Results, wait: Callable[[], Any], point: CrashPoint
) -> Any:
    for _ in range(TRIES):
        try:
            result = act(key)
        except (InProgress, LostRace):
            pass
        except raises as error:
            return error
        except Exception as error:
            raise AssertionError(f"{point}: the retry raised {error!r}") from error
        else:
            if not CallResult.of(result).busy:
                return result
        time.sleep(PAUSE)
        wait()
    raise AssertionError(f"{point}: the retry is busy, and stays so.")
