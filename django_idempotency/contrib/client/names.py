"""The name and the key of a call: given, of the block around it, or of the step that it runs in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from ...api import CURRENT_STEP
from ...errors import CallInTransaction, StepNamesOneCall
from ...runtime.current_step import RunningStep

#: As long as the column.
LONGEST = 255


@dataclass(slots=True, kw_only=True)
class Resumption:
    """A call that a command sends again."""

    name: str
    key: str
    provider: str
    #: As many attempts as there were when it was found: another process may find it, too.
    attempts: int
    #: Has a client of ours sent it?
    taken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallName:
    """What a call is known by, and the key that it has if it is the first under that name."""

    name: str
    #: The caller's or the step's; `None`: the ledger makes one.
    key: str | None
    #: The step in which it is made.
    step: RunningStep | None = None
    #: Is it a call of a dead process, which a command sends again?
    resumption: Resumption | None = None


_NAME: ContextVar[str | Resumption | None] = ContextVar("django_idempotency_outgoing", default=None)


def outgoing(name: str) -> AbstractContextManager[None]:
    """Name the call to a provider that this block makes.

    `with outgoing("order-17"): session.post(...)`. A name is one call, for each provider. The same
    request again gets the response of the first; another one raises `CallChanged`. Raises
    `ValueError` for a name that is empty or longer than 255 characters.
    """
    return naming(checked(name))


@contextmanager
def naming(name: str | Resumption | None) -> Iterator[None]:
    """Name the call of this block; or let it be one that was made before, and that nobody waits
    for.
    """
    token = _NAME.set(name)
    try:
        yield
    finally:
        _NAME.reset(token)


def checked(name: str) -> str:
    """Return a name. Raises `ValueError` for one that is not one."""
    if not 0 < len(name) <= LONGEST or "\0" in name:
        raise ValueError(
            f"The name of a call has 1 to {LONGEST} characters, and no U+0000: {name[:80]!r}."
        )
    return name


def name_of(given: str | None, key: str | None) -> CallName | None:
    """Return what a call is named by; `None`: nothing names it.

    The request's own name comes first, then the block's, then the step's, then the key that the
    caller has set. Raises `CallInTransaction` in a transactional step, and `StepNamesOneCall` for
    its second unnamed call.
    """
    step = CURRENT_STEP.get()
    around = _NAME.get()
    if step is not None and step.transactional:
        raise CallInTransaction
    if isinstance(around, Resumption):
        around.taken = True
        return CallName(name=around.name, key=around.key, resumption=around)
    name = around if given is None else given
    if name is not None:
        return CallName(name=checked(name), key=key, step=step)
    if step is not None:
        name = checked(f"{step.operation}/{step.name}")
        if name in step.answered:
            raise StepNamesOneCall
        return CallName(name=name, key=key or step.key, step=step)
    return None if key is None else CallName(name=checked(key), key=key)
