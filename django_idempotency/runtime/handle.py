"""The running work's view of its own operation: `request.idempotency` in a view,
`current_operation()` elsewhere.

An app that is optional may add to it, and say how its work ends: see
`app_extensions`.
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from .. import conf
from ..core.conclusions import Ending, WorkResult
from ..core.policy import Duration, Policy, Resolved, seconds
from ..core.records import CALL_METHOD, OutcomeKind
from ..engine.operation import Operation
from ..errors import ConfigurationError, KeyTooOld, OperationHeld, Problem
from ..instrumentation.trail import trail
from ..stores.lending import in_database_thread
from .derivation import Unstored, derive, is_usable

logger = logging.getLogger("django_idempotency")

#: How long a record waits for a person (seconds): the longest duration.
HELD_FOR = 3650 * 86400.0


class Course:
    """The course of one work. A work without steps ends as its response or its exception says,
    unless it is held.
    """

    #: What `derive()` or a step raised that has left the work: the client gets that, whatever is
    #: made of the exception.
    problem: Problem | None = None

    def __init__(self, handle: OperationHandle) -> None:
        self.handle = handle

    def decided(self) -> Ending | None:
        """Return how the work ends, whatever its response or exception is; `None`: as those say."""
        if not self.handle.is_held:
            return None
        # Again: Django takes the mark off with the block of the work in which it was set.
        self.handle._operation.set_rollback()  # noqa: SLF001 - ours
        return Ending(WorkResult.KEPT, OutcomeKind.HELD.outcome(), HELD_FOR)

    def is_unfinished(self) -> bool:
        """Must a retry go on with the work, whatever it has returned or raised?

        Then no response may be kept.
        """
        return False

    def can_be_undone(self) -> bool:
        """May the work still be undone?

        Then nobody may learn that it is done before its record says so.
        """
        return False

    def have_begun(self) -> bool:
        """Has a step been done or begun, by this attempt or an earlier one?

        Then the key must not be free for another request.
        """
        return False

    def left_by(self, error: BaseException) -> Problem | None:
        """Note the exception that has left the work.

        Return the problem that the client gets for it, if any. Raises nothing.
        """
        if (self.handle.is_held and isinstance(error, OperationHeld)) or (
            isinstance(error, Problem) and error.ends_work
        ):
            self.problem = error
        return self.problem if self.problem is error else None

    def completed(self) -> None:
        """Note that the record of the work is completed. Raises nothing."""


class OperationHandle:
    """One operation, as the work that runs under it sees it."""

    #: What its course says of its end: internal.
    _course = Course
    #: The terms of the route or function; `None`: the work has not begun.
    _policy: Resolved | None = None

    def __init__(self, operation: Operation, policy: Resolved | None = None) -> None:
        self._operation = operation
        self._policy = policy
        #: See `ttl`.
        self.seconds: float | None = None
        #: Must a person decide?
        self.is_held = False

    def __getattr__(self, name: str) -> Any:
        """Raise `ConfigurationError` for what an app adds that is not installed."""
        app = conf.app_with(name)
        if app is not None:
            raise ConfigurationError(
                f'{name}() needs a table. Add "{app}" to INSTALLED_APPS, and run manage.py migrate.'
            )
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
        )

    @property
    def is_running(self) -> bool:
        """Does the work run now? Before and after it, nothing here belongs to its key."""
        return False

    @property
    def record_id(self) -> UUID | None:
        """The id of its record; `None`: nothing is stored of it."""
        operation = self._operation
        return None if isinstance(operation, Unstored) else operation.ticket.id

    @property
    def key(self) -> str:
        """The idempotency key: the client's, unquoted, or a selected or given one."""
        return self._operation.key

    @property
    def attempt(self) -> int:
        """The number of this run.

        Above 1, an earlier one failed, was refused or crashed; 0: the store is down.

        To decide whether to act, ask `may_have_acted`.
        """
        return self._operation.attempt

    @property
    def may_have_acted(self) -> bool:
        """May an earlier attempt have acted elsewhere? Then ask the other side before you act.

        Also `True` where nothing is known of earlier attempts: the store is down
        (`on_store_failure="open"`), idempotency is off, or there is no key. Raises
        `ConfigurationError` where a crash may take back that this attempt was made, so that the
        next one would be told `False`: a claim in an open transaction, or with `durable_claims`
        off.
        """
        operation = self._operation
        if operation.claim_is_durable:
            return operation.may_have_acted
        ticket = operation.ticket
        name = ticket.path if ticket.method == CALL_METHOD else f"{ticket.method} {ticket.path}"
        if not operation.claimed_inside:
            raise ConfigurationError(
                f"may_have_acted of {name} is not known: a crash of the database may "
                "forget its claim, since its store has "
                '"durable_claims": False. Take that out of its OPTIONS in '
                'IDEMPOTENCY["STORES"], or name another store in '
                "this policy: it is for work that writes in that database only."
            )
        raise ConfigurationError(
            f"may_have_acted of {name} is not known: its claim is in an open transaction, "
            "that of ATOMIC_REQUESTS or of a caller, and was rolled back with each attempt that "
            'failed. Type guarantee="lease"; or take the view out of ATOMIC_REQUESTS with '
            "@transaction.non_atomic_requests, and call a function outside atomic()."
        )

    def derive(self, label: str) -> str:
        """Return a key to pass on to a provider: 64 hex digits, the same for this label on every
        attempt and takeover.

        A corrected request and a request after expiry get another. Raises `KeyTooOld` where the
        provider may have forgotten it since an earlier attempt (`LIFETIME`), and leaves the
        operation to a person: what was written here is rolled back. Raises `SecretUnknown`, and
        `OperationUnknown` where `on_store_failure="open"` lets the work run while the store is
        down.
        """
        key = self._derive(label)
        if not is_usable(self._operation, label):
            self.is_held = True
            self._operation.set_rollback()
            logger.error(
                "Held: the key for %r may have been used by an earlier attempt, and is "
                "older than its LIFETIME. Look there for "
                "the effect of the key that idempotency_record --derive prints; if there "
                "is none, release the record.",
                label,
            )
            raise KeyTooOld
        return key

    def _derive(self, label: str) -> str:
        """Derive a key, however old it is: the name of something here, or of what notes itself when
        it was used.
        """
        return derive(self._operation, label)

    def refer(self, kind: str, value: Any) -> None:
        """Tie a business id to this key in the audit trail, such as ("payment", charge.pk) or
        ("shop.charge", charge.pk).

        It is committed with the work's transaction; with `lease`, or where the trail is in another
        database, at once. The same twice is kept once. `kind` is up to 64 letters, digits, `_`, `.`
        and `-`; `str(value)` has 1 to 255 characters. Raises `ValueError` for others,
        `ConfigurationError` without an audit trail, and the database's errors.
        """
        if self.record_id is None:
            return
        if trail.active is None:
            raise ConfigurationError(
                f"refer() writes to the audit trail, which is off. Add "
                f'"{conf.app_with("AUDIT")}" to INSTALLED_APPS and "AUDIT": True to '
                "settings.IDEMPOTENCY, and type: manage.py "
                "migrate."
            )
        trail.active.refer(self._operation, kind, value)

    async def arefer(self, kind: str, value: Any) -> None:
        """See refer()."""
        return await in_database_thread(self.refer, kind, value)

    @property
    def lost(self) -> bool:
        """Has the `lease` of this run ended?

        Another may be running by now: stop if that still helps.
        """
        return self._operation.is_lost()

    @property
    def ttl(self) -> Duration | None:
        """How long this response is kept, from its completion; `None`: as declared, from the
        claim.
        """
        return self.seconds

    @ttl.setter
    def ttl(self, value: Duration) -> None:
        self.seconds = seconds(Policy(ttl=value).ttl)  # raises ValueError for an invalid duration


def has_course(handle: type[OperationHandle]) -> bool:
    """May an optional app say how a work with this handle ends?"""
    return handle._course is not Course  # noqa: SLF001 - ours
