"""crash_matrix(): a process is killed at each statement and each border of a step, and a retry must repair it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django.db import connections

from ..errors import InProgress
from .calling import CallResult
from .clock import end_leases
from .crash_points import CrashPoint, Results, run_until

#: How often a retry that is busy comes again, and the pause (seconds): a server may not have noticed yet who is dead.
TRIES, PAUSE = 40, 0.05


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
    """Kill a process at each point of `act(key)`, let a retry finish it, and yield what there is to check.

    A first run lists the points: before and after each statement of its thread on any database; before, during and after
    each step and undo; and the end, where nobody has the result yet. Then, for each point, a forked process calls `act`
    with a new key and is killed there by SIGKILL, `wait()` lets the leases of the dead end, and `act` is called again in
    this process until it is not busy. `deaths` is the number of processes that are killed in a row: each later one is a
    retry, and is killed at the point of the same number on its own way, if it comes that far. `only(point)` says at which points.

    An exception listed in `raises` is a result. Raises `AssertionError` with the point if a retry raises another one or
    stays busy, and if two runs differ; `RuntimeError` where it cannot work: without `os.fork`, inside a transaction, or
    with a database in memory.
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
        raise RuntimeError("This system has no os.fork(), with which crash_matrix() starts what it kills.")
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            raise RuntimeError(
                f"This test runs in a transaction on {connection.alias!r}, into which other processes cannot look. "
                "Type @pytest.mark.django_db(transaction=True), or make the class a TransactionTestCase."
            )
        if connection.vendor == "sqlite" and connection.is_in_memory_db():  # type: ignore[attr-defined]
            raise RuntimeError(
                'Processes cannot share a SQLite database in memory: give its "TEST" a "NAME", of a file.'
            )


def _finish(act: Callable[[str], Any], key: str, raises: Results, wait: Callable[[], Any], point: CrashPoint) -> Any:
    for _ in range(TRIES):
        try:
            result = act(key)
        except InProgress:
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
