"""Where a process can die between the parts of a step.

Tests watch these borders; otherwise nobody does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum


class Border(str, Enum):
    """A place on the way through a step or an undo. The undo of the step "charge" is called "undo
    charge".
    """

    BEFORE = "before"  # its body has not begun; its start is committed, if it has one
    DURING = "during"  # its body has ended, and its row does not say so yet
    AFTER = "after"  # its row is committed

    def __str__(self) -> str:
        return self.value


Watcher = Callable[[str, Border], None]
_watchers: list[Watcher] = []


def reached(name: str, border: Border) -> None:
    """Let the watchers know that a step is here. What they raise ends the attempt."""
    for watcher in _watchers:
        watcher(name, border)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Call `watcher(name, border)` at each border, in every thread of this process, until the end
    of the block.
    """
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)
