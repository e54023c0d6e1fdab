"""What a work's own course says of its end, for the entry points. A wing may give a handle another one: see `extensions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..core.conclusions import WorkResult
from ..core.records import CANCELLATIONS, Outcome, OutcomeKind
from ..errors import OperationHeld, Problem

if TYPE_CHECKING:
    from .handle import OperationHandle

#: How long a record waits for a person (seconds): the longest duration.
HELD_FOR = 3650 * 86400.0


class WorkEnding(NamedTuple):
    """How a work ends whose course has decided it. `ttl` is seconds; `None`: as declared."""

    work_result: WorkResult
    outcome: Outcome | None
    ttl: float | None

    @property
    def is_final(self) -> bool:
        """Is its response not stored, whatever it is? Otherwise the work has given up, and that is its last word."""
        return self.outcome not in CANCELLATIONS


class Course:
    """The course of one work. A work without steps ends as its response or its exception says, unless it is held."""

    #: What `derive()` or a step raised that has left the work: the client gets that, whatever is made of the exception.
    problem: Problem | None = None

    def __init__(self, handle: OperationHandle) -> None:
        self.handle = handle

    def decided(self) -> WorkEnding | None:
        """Return how the work ends, whatever its response or exception is; `None`: as those say."""
        if not self.handle.is_held:
            return None
        # Again: Django takes the mark off with the block of the work in which it was set.
        self.handle._operation.set_rollback()  # noqa: SLF001 - ours
        return WorkEnding(WorkResult.KEPT, OutcomeKind.HELD.outcome(), HELD_FOR)

    def is_unfinished(self) -> bool:
        """Must a retry go on with the work, whatever it has returned or raised? Then no response may be kept."""
        return False

    def can_be_undone(self) -> bool:
        """May the work still be undone? Then nobody may learn that it is done before its record says so."""
        return False

    def have_begun(self) -> bool:
        """Has a step been done or begun, by this attempt or an earlier one? Then the key must not be free for another request."""
        return False

    async def ahave_begun(self) -> bool:
        """See have_begun()."""
        return False

    def left_by(self, error: BaseException) -> Problem | None:
        """Note the exception that has left the work. Return the problem that the client gets for it, if any. Raises nothing."""
        if self.handle.is_held and isinstance(error, OperationHeld):
            self.problem = error
        return self.problem if self.problem is error else None

    async def aleft_by(self, error: BaseException) -> Problem | None:
        """See left_by()."""
        return self.left_by(error)

    def completed(self) -> None:
        """Note that the record of the work is completed. Raises nothing."""

    async def acompleted(self) -> None:
        """See completed()."""
