"""Extensions: objects of a project, or of an optional app, that have a say in guarded calls.

`Policy(extensions=[FreshKeys("60/m")])` names those of one route or function, and the setting
EXTENSIONS those of all.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from ..core import conclusions
from ..core.conclusions import Ending, SettledState, WorkResult
from ..core.policy import Resolved
from ..core.records import Record, Ticket
from ..core.rules import Execute
from ..errors import Problem
from .operation import Operation

logger = logging.getLogger("django_idempotency")


class Extension:
    """Has a say in calls under a key. Each method does nothing until a subclass overrides it.

    One object serves all calls, at once and in several threads: what belongs to a call is kept in
    its `memory`. The methods of async calls run in a thread. Where errors are logged, so is a time
    limit that raises there, as in a receiver of a signal.
    """

    #: The problems that it may respond with. They are published with the policy.
    raises: tuple[type[Problem], ...] = ()
    #: Does it need `did_nothing`? Then each call watches what its work writes.
    asks_writes: ClassVar[bool] = False
    #: Can it guard the calls of functions, which have no request?
    takes_functions: ClassVar[bool] = True
    #: Does it mean something with guarantee="lease" only? A policy that names it beside "atomic" is
    #: refused, and the setting means it for the others.
    needs_lease: ClassVar[bool] = False
    #: The values that it sets in the compiled policy, by their names in `core.policy.TERMS`.
    terms: Mapping[str, Any] = MappingProxyType({})

    @property
    def decides(self) -> object:
        """By what it replaces one of the settings in a policy: its class, or the name of a term."""
        return type(self)

    @property
    def acts(self) -> bool:
        """Does it look at calls, by one of the methods below?"""
        return any(
            getattr(type(self), name) is not getattr(Extension, name)
            for name in ("before_claim", "claimed", "ended", "event")
        )

    def contradiction(self, says: Callable[[str], Any]) -> str | None:
        """Return why it cannot be in a policy, and what to type; `None`: it can.

        `says(name)` is a field of the policy. It is asked when the policy is made, when a field
        that is left out is `MISSING`, and again when the settings have said the rest.
        """
        return None

    def check(self, name: str, terms: Resolved) -> Iterable[Any]:
        """Return the messages of `manage.py check` on a policy that names it: that of a view or
        function of this name. `terms`: with what the settings say.
        """
        return ()

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
        """Look at a call that has ended, and whose `claimed()` has returned. `left_as` says how.

        It is called once, unless the process dies. Errors are logged.
        """

    def event(self, name: str, call: Details) -> None:
        """Hear of an event of a call, such as "replayed" or "lost": see `signals`.

        Errors are logged. In `atomic` it may be inside the transaction of the work.
        """


class Details:
    """One call under a key, as an extension sees it: the same object at each of its methods."""

    def __init__(self, operation: Operation, policy: Resolved, request: Any = None) -> None:
        # Both refer to us: a strong reference would keep them until garbage collection.
        self._made_for = weakref.ref(operation)
        self._request = None if request is None else weakref.ref(request)
        #: The policy with all its fields, durations in seconds.
        self.policy = policy
        self._extensions: list[Extension] = [
            each for each in policy.extensions if request is not None or each.takes_functions
        ]
        #: Those that have let the call pass, and have not heard of its end.
        self._claimed: list[Extension] = []
        #: A place for what an extension has found out about this call.
        self.memory: dict[Extension, Any] = {}
        #: Was it refused by work that wrote nothing? Known to those that set `asks_writes`.
        self.did_nothing = False
        operation.details = self
        if any(each.asks_writes for each in self._extensions):
            operation.counts_writes = True

    @property
    def _operation(self) -> Operation:
        operation = self._made_for()
        assert operation is not None, "its call keeps it"
        return operation

    @property
    def request(self) -> Any:
        """Django's request; `None`: the call is of a function, or the request has ended."""
        return None if self._request is None else self._request()

    @property
    def ticket(self) -> Ticket:
        """The key, its scope, and all else that the call brings to its store."""
        return self._operation.ticket

    @property
    def attempt(self) -> int:
        """The number of this run of the work; 0: it is not claimed."""
        return self._operation.attempt

    @property
    def record(self) -> Record | None:
        """The record as the store has returned it; `None`: it was not asked, or did not respond."""
        return self._operation.record

    @property
    def run(self) -> Execute | None:
        """Why the work may run: `run.takeover` says that an earlier owner was abandoned. `None`: it
        may not, or not yet.
        """
        return self._operation.run

    @property
    def left_as(self) -> SettledState | None:
        """How the call has left its record; `None`: it has not ended, or the record was lost."""
        return self._operation.left_as

    def stored(self) -> Record | None:
        """Ask the store for the record of this key. Raises `StoreUnavailable`."""
        return self._operation.store.get(self.ticket.id)

    def report(self, event: str) -> None:
        """Send one of `django_idempotency.signals` about this call, and log it."""
        self._operation.sink(event, self._operation)

    # ---------------------------------------------------------------- the call asks its extensions

    def before_claim(self, payload: Any) -> None:
        """Ask each before the claim. Raises what one of them raises."""
        for each in self._extensions:
            each.before_claim(self, payload)

    def claimed(self) -> None:
        """Ask each about the claim. Raises what one of them raises, and undoes the claim."""
        operation = self._operation
        try:
            for each in self._extensions:
                each.claimed(self)
                self._claimed.append(each)
        except BaseException as error:
            try:
                if isinstance(error, Problem) and conclusions.is_new(operation.run):
                    # As if it had never come: sent again, it is a new key again.
                    operation.settle(Ending(WorkResult.DROPPED, ttl=0.0))
                else:
                    operation.abandon()
            finally:
                self.ended()
            raise

    def ended(self) -> None:
        """Tell each whose `claimed()` has returned, once, that the call has ended."""
        claimed = self._claimed
        self._claimed = []
        for each in claimed:
            try:
                with self._operation.savepoint():
                    each.ended(self)
            except Exception:
                logger.exception("%r could not be told that a call has ended.", each)

    def heard(self, event: str) -> None:
        """Tell each of an event. Raises nothing."""
        for each in self._extensions:
            if type(each).event is Extension.event:
                continue
            try:
                with self._operation.savepoint():
                    each.event(event, self)
            except Exception:
                logger.exception("%r could not be told of the event %r.", each, event)
