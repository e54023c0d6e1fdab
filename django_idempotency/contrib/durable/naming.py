"""`with execution(name, …):` names the durable execution that runs here."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...core.policy import Duration, seconds
from ...functions.deadlines import LONGEST
from ...functions.executions import EXECUTION
from .suspending import Execution

#: Exceptions that leave a function for other reasons, too.
_OTHERS = (BaseException, Exception, KeyboardInterrupt, SystemExit, GeneratorExit, CancelledError)


@contextmanager
def execution(
    name: str,
    *,
    suspended_by: type[BaseException] | tuple[type[BaseException], ...],
    resumes_within: Duration | None = None,
) -> Iterator[None]:
    """Name this durable execution, for example by its ARN, and the exceptions with which its engine suspends it.

    Such an exception suspends a guarded call ("lease"): other calls find it busy, and this execution resumes it, as the
    same attempt, when it calls it again. If that takes longer than `resumes_within` (seconds or a `timedelta`), the
    call counts as crashed; the default is the call's `expires_after`. Parallel calls in one execution need different
    names, or one would resume the other. Raises `TypeError` or `ValueError` for an invalid argument.
    """
    token = EXECUTION.set(_execution(name, suspended_by, resumes_within))
    try:
        yield
    finally:
        EXECUTION.reset(token)


def _execution(name: Any, suspended_by: Any, resumes_within: Duration | None) -> Execution:
    if not isinstance(name, str):
        raise TypeError(f"execution() takes the name of a durable execution, not {name!r}.")
    if not name or not name.isprintable():
        raise ValueError("execution() needs a name of its own, in printable characters, such as the execution's ARN.")
    classes = suspended_by if isinstance(suspended_by, tuple) else (suspended_by,)
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise TypeError(f"suspended_by takes exception classes, not {cls!r}.")
    if not classes or any(cls in _OTHERS for cls in classes):
        raise ValueError(
            "suspended_by names the exceptions by which the engine suspends an execution, such as SuspendExecution."
        )
    within = None if resumes_within is None else seconds(resumes_within)
    if within is not None and not 0 < within <= LONGEST:  # also for NaN
        raise ValueError(f"resumes_within is seconds, above 0 and at most ten years, not {resumes_within!r}.")
    return Execution(name, classes, within)
