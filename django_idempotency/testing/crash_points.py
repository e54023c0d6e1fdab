"""The points at which crash_matrix() kills a process, and the process."""

from __future__ import annotations

import json
import os
import re
import signal
import traceback
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from django.db import connections

from ..engine.borders import Border, watched_by

#: The verb of a statement, and its table.
_SUBJECT = re.compile(r"\s*(\w+)(?:(?:(?<=UPDATE)|.*?\b(?:INTO|FROM)\b)\s+[\"`]?(\w+))?", re.IGNORECASE | re.DOTALL)

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


def run_until(act: Callable[[str], Any], key: str, raises: Results, last: int | None = None) -> list[CrashPoint] | None:
    """Call it in a forked process. Return the points that it passed; `None`: it was killed at the last one."""
    used = [each.alias for each in connections.all(initialized_only=True)]
    connections.close_all()  # two processes must not share one
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Threads of this process do not exist in the child, which resets what the package has in them.
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
    """Call it and pass its points. Return them, and the traceback of an exception that is not a result."""
    points: list[CrashPoint] = []

    def passing(at: Any, when: Any, name: str = "") -> None:
        points.append(CrashPoint(number=len(points) + 1, at=at, when=when, name=name))
        if len(points) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def executed(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
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
