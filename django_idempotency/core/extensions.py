"""Extensions: objects of a project, or of an optional app, that have a say in guarded calls.

`Policy(extensions=[FreshKeys("60/m")])` names those of one route or function, and the setting
EXTENSIONS those of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from ..errors import Problem
from .conclusions import SettledState
from .policy import Resolved
from .records import Record, Ticket
from .rules import Execute


class Details(Protocol):
    """One call under a key, as an extension sees it: the same object at each of its methods."""

    @property
    def request(self) -> Any:
        """Django's request; `None`: the call is of a function."""

    @property
    def policy(self) -> Resolved:
        """The policy with all its fields."""

    @property
    def ticket(self) -> Ticket:
        """The key, its scope, and all else that the call brings to its store."""

    @property
    def attempt(self) -> int:
        """The number of this run of the work; 0: it is not claimed."""

    @property
    def record(self) -> Record | None:
        """The record as the store has returned it; `None`: it was not asked, or did not respond."""

    @property
    def run(self) -> Execute | None:
        """Why the work may run: `run.takeover` says that an earlier owner was abandoned. `None`: it
        may not, or not yet.
        """

    @property
    def left_as(self) -> SettledState | None:
        """How the call has left its record; `None`: it has not ended, or the record was lost."""

    @property
    def did_nothing(self) -> bool:
        """Was it refused by work that wrote nothing? Known to those that set `asks_writes`."""

    @property
    def memory(self) -> dict[Extension, Any]:
        """A place for what an extension has found out about this call."""

    def stored(self) -> Record | None:
        """Ask the store for the record of this key. Raises `StoreUnavailable`."""

    def report(self, event: str) -> None:
        """Send one of `django_idempotency.signals` about this call, and log it."""


class Extension:
    """Has a say in calls under a key. Each method does nothing until a subclass overrides it.

    One object serves all calls, at once and in several threads: what belongs to a call is kept in
    its `memory`. The methods of async calls run in a thread.
    """

    #: The problems that it may respond with. They are published with the policy.
    raises: tuple[type[Problem], ...] = ()
    #: Does it need `did_nothing`? Then each call watches what its work writes.
    asks_writes: ClassVar[bool] = False
    #: Can it guard the calls of functions, which have no request?
    takes_functions: ClassVar[bool] = True

    def contradiction(self, says: Callable[[str], Any]) -> str | None:
        """Return why it cannot be in a policy, and what to type; `None`: it can.

        `says(name)` is a field of the policy, or of the settings; `MISSING`: nobody has said it
        yet. It is asked when the policy is made, and again under the settings.
        """
        return None

    def before_claim(self, call: Details, payload: Any) -> None:
        """Look at a call before its key is claimed. An error that it raises is the answer.

        `payload`: a request as expressions see it, a mapping with `body`, `headers`, `method`,
        `path`, `query` and `user`, whose `source` is the request of the view; or the payload of a
        function.
        """

    def claimed(self, call: Details) -> None:
        """Look at a call that is claimed, and whose work is about to run.

        An error that it raises is the answer, and the claim is undone: a key that was new is free.
        """

    def ended(self, call: Details) -> None:
        """Look at a claimed call that has ended. `left_as` says how; errors are logged."""

    def event(self, name: str, call: Details) -> None:
        """Hear of an event of a call, such as "replayed" or "lost": see `signals`.

        Errors are logged. In `atomic` it may be inside the transaction of the work.
        """
