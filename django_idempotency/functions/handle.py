"""Access to the calls of a guarded function: `charge.idempotency.lookup(order_id=17)`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from asgiref.sync import AsyncToSync, sync_to_async
from django.db import close_old_connections

from ..core import rules
from ..core.failures import response_of
from ..core.hashing import record_id
from ..core.interventions import Intervention, expired_now
from ..core.records import Record, Status, shortened
from ..core.states import state_of
from ..errors import ConfigurationError, InProgress, KeyMissing, RecordUnreadable
from ..instrumentation.trail import trail
from ..runtime.current_step import EXECUTION
from ..runtime.registry import stores
from .call import key_of, plan_of
from .endings import remembered
from .names import validate_key
from .running import Answer, arun, run
from .terms import FunctionTerms

logger = logging.getLogger("django_idempotency")


@dataclass(frozen=True, slots=True)
class Known:
    """The record of a call. `state` is a word of `core.states`, such as "running", "abandoned" or
    "completed".

    With `atomic` a call counts as abandoned a minute after its short lease: until then it may work,
    under its row's lock.
    """

    record: Record
    terms: FunctionTerms

    @property
    def state(self) -> str:
        """Return what a call with this key would find."""
        return state_of(self.record).value

    @property
    def attempt(self) -> int:
        """Return how often it was started."""
        return self.record.attempt

    def result(self) -> Any:
        """Return the stored result, or raise the stored exception, `HeldForPerson` or
        `ResponseNotStored`.

        Raises `InProgress` while there is none, and `RecordUnreadable` for a damaged one.
        """
        outcome = response_of(self.record)
        if outcome is None:
            raise RecordUnreadable if self.record.status is Status.COMPLETED else InProgress
        return remembered(self.terms, outcome)

    async def aresult(self) -> Any:
        """See result(). A serializer may query the ORM, which refuses calls from an event loop."""
        return await sync_to_async(self.result)()


class Handle:
    """The calls of one guarded function. Methods take those of its arguments that the key is made
    of, without `self` or `cls`.
    """

    def __init__(self, terms: FunctionTerms) -> None:
        self._terms = terms

    @property
    def name(self) -> str:
        """The function's name in the store."""
        return self._terms.name

    @property
    def scope(self) -> str:
        """The scope of its keys, for `manage.py idempotency_record SCOPE KEY`."""
        return self._terms.scope

    @property
    def is_async(self) -> bool:
        """Is it a coroutine function?"""
        return self._terms.is_async

    def key_for(self, *args: Any, **kwargs: Any) -> str:
        """Return the key of a call with these arguments. Raises `KeyMissing` if it has none."""
        key = key_of(
            self._terms, self._terms.arguments.payload(args, kwargs, self._terms.identifying)
        )
        if key is None:
            raise KeyMissing
        return key

    def lookup(self, *args: Any, **kwargs: Any) -> Known | None:
        """Return the record of a call with these arguments, or `None`. Changes nothing."""
        return self.lookup_key(self.key_for(*args, **kwargs))

    def lookup_key(self, key: str) -> Known | None:
        """Return the record of a key, or `None`. See lookup()."""
        record = plan_of(self._terms).store.get(record_id(self.scope, validate_key(key)))
        return None if record is None or rules.expired(record) else Known(record, self._terms)

    def forget(self, *args: Any, **kwargs: Any) -> bool:
        """Delete the record of a call with these arguments, so that it runs again.

        Returns whether there was one.

        Raises `InProgress` while it runs. A suspended call counts as running, except in its own
        execution: see forget_key().
        """
        return self.forget_key(self.key_for(*args, **kwargs))

    def forget_key(self, key: str) -> bool:
        """Forget a key.

        See forget(). Inside a durable execution, this includes a call that this execution has
        suspended.
        """
        store = stores.outermost(plan_of(self._terms).store)
        name = record_id(self.scope, validate_key(key))
        execution = EXECUTION.get()
        if execution is not None and execution.release(
            store, name, audit=self._audit, forgetting=True
        ):
            return True
        ended = store.change(name, expired_now, audit=self._audit)
        if ended is Intervention.BUSY:
            raise InProgress
        return ended is Intervention.DONE

    async def alookup(self, *args: Any, **kwargs: Any) -> Known | None:
        """See lookup()."""
        return await sync_to_async(self.lookup)(*args, **kwargs)

    async def aforget(self, *args: Any, **kwargs: Any) -> bool:
        """See forget()."""
        return await sync_to_async(self.forget)(*args, **kwargs)

    def answer(self, *args: Any, **kwargs: Any) -> Answer:
        """Call the function.

        Return its result and whether it is a replay. Takes `self` and `cls`, as a call does.
        """
        if self.is_async:
            raise ConfigurationError(f"{self.name} is async: await its aanswer().")
        return run(self._terms, args, kwargs)

    async def aanswer(self, *args: Any, **kwargs: Any) -> Answer:
        """See answer().

        A sync function runs in a thread of its own, or in that of sync code which waits for this
        loop.
        """
        if self.is_async:
            return await arun(self._terms, args, kwargs)
        waits = getattr(AsyncToSync.executors, "current", None) is not None
        call = sync_to_async(run if waits else _run_apart, thread_sensitive=waits)
        return await call(self._terms, args, kwargs)

    def _audit(self, record: Record) -> None:
        logger.warning(
            "Forgotten: %s under %s, by a call of forget().", self.name, shortened(record.key)
        )
        trail.intervened("forgotten", record, actor=self.name)


def _run_apart(*given: Any) -> Answer:
    """Run a call in a thread that others use, too: its connections are closed as around a
    request.
    """
    close_old_connections()
    try:
        return run(*given)
    finally:
        close_old_connections()
