"""What an extension sees of a call, and how its methods are called."""

from __future__ import annotations

import logging
import weakref
from typing import Any

from ..core.conclusions import Ending, SettledState, WorkResult
from ..core.extensions import Extension
from ..core.policy import Resolved
from ..core.records import Record, Ticket
from ..core.rules import Execute
from ..errors import Problem
from .operation import Operation

logger = logging.getLogger("django_idempotency")

_SILENT = Extension.event


class CallDetails:
    """The details of one call (`core.extensions.Details`), and the extensions that it has."""

    def __init__(self, operation: Operation, policy: Resolved, request: Any = None) -> None:
        # Both refer to us: a strong reference would keep them until garbage collection.
        self._made_for = weakref.ref(operation)
        self._request = None if request is None else weakref.ref(request)
        self.policy = policy
        self.extensions: tuple[Extension, ...] = tuple(policy.extensions)
        if request is None:
            self.extensions = tuple(each for each in self.extensions if each.takes_functions)
        #: Those that hear of events.
        self._hearing = [each for each in self.extensions if type(each).event is not _SILENT]
        self.memory: dict[Extension, Any] = {}
        self.did_nothing = False
        operation.details = self
        if any(each.asks_writes for each in self.extensions):
            operation.counts_writes = True

    @property
    def _operation(self) -> Operation:
        operation = self._made_for()
        assert operation is not None, "its call keeps it"
        return operation

    @property
    def request(self) -> Any:
        return None if self._request is None else self._request()

    @property
    def ticket(self) -> Ticket:
        return self._operation.ticket

    @property
    def attempt(self) -> int:
        return self._operation.attempt

    @property
    def record(self) -> Record | None:
        return self._operation.record

    @property
    def run(self) -> Execute | None:
        return self._operation.run

    @property
    def left_as(self) -> SettledState | None:
        return self._operation.left_as

    def stored(self) -> Record | None:
        return self._operation.store.get(self.ticket.id)

    def report(self, event: str) -> None:
        self._operation.sink(event, self._operation)

    # ------------------------------------------------------------------------- for the call itself

    def before_claim(self, payload: Any) -> None:
        """Ask each before the claim. Raises what one of them raises."""
        for each in self.extensions:
            each.before_claim(self, payload)

    def claimed(self) -> None:
        """Ask each about the claim. Raises what one of them raises, and undoes the claim."""
        operation = self._operation
        try:
            for each in self.extensions:
                each.claimed(self)
        except BaseException as error:
            if isinstance(error, Problem) and operation.attempt == 1:
                # As if it had never come: sent again, it is a new key again.
                operation.settle(Ending(WorkResult.DROPPED, ttl=0.0))
            else:
                operation.abandon()
            self.ended()
            raise

    def ended(self) -> None:
        """Tell each that the call has ended. Raises nothing."""
        for each in self.extensions:
            try:
                each.ended(self)
            except Exception:
                logger.exception("%r could not be told that a call has ended.", each)

    def heard(self, event: str) -> None:
        """Tell each of an event. Raises nothing."""
        for each in self._hearing:
            try:
                with self._operation.savepoint():
                    each.event(event, self)
            except Exception:
                logger.exception("%r could not be told of the event %r.", each, event)
