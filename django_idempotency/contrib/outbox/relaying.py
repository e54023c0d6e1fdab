"""Take due messages, note the attempt, publish them, delete the confirmed ones: two transactions
per batch.

When a message fails, the later ones of its key wait with it. When a relay dies, its locks are
freed, and the attempts that it had noted have no end. What it had published since its last COMMIT
is published again under the same ids: each message of that batch alone, so that the next death has
only one to blame. That one waits like a failed message while the others continue. After
`max_attempts` deaths it is set aside: it waits for a person, and the later ones of its key with it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import Error, connections, transaction

from ...api import Metric, lost_race
from ...errors import ConfigurationError
from ...inspection import redaction
from ...instrumentation.meters import SLOW
from ...stores.base import utcnow
from .models import SET_ASIDE, Message
from .publishing import AWAY, Publish, refuse_promise
from .taking import Taker

logger = logging.getLogger("django_idempotency")

MESSAGES = Metric("outbox.messages", "Messages that a relay tried.", ("outcome",), unit="{message}")
LAG = Metric(
    "outbox.lag", "From the sending of a message to its publishing.", unit="s", buckets=SLOW
)

#: Seconds after which a batch publishes no further message: it holds locks, and a server may end
#: idle transactions. In a database without row locks, all writers wait meanwhile.
LONGEST = 5.0
LONGEST_ALONE = 0.2
#: Seconds until a failed message is retried: the first pause, doubled with each attempt, and the
#: longest.
BACK_OFF = 1
LONGEST_BACK_OFF = 300
#: Deaths of relays in one message's attempts after which it is set aside.
MAX_ATTEMPTS = 5

_NOT_PUBLISHED = "Message %s to %s was not published, attempt %d: %s"
_SUSPECT = (
    "A relay died in a batch with message %s to %s, which is published alone now, attempt %d."
)
_SET_ASIDE = (
    "Message %s to %s is set aside: %s. It and those behind it of its key wait until "
    "somebody chooses 'Try again now' in the "
    "admin, or deletes it."
)
_USERINFO = re.compile(r"//[^/@\s]+@")


@dataclass(slots=True)
class RelayedBatch:
    """The outcome of the messages that a relay took."""

    published: list[Message] = field(default_factory=list)
    failed: list[Message] = field(default_factory=list)
    #: Those in whose attempts relays have died too often.
    set_aside: list[Message] = field(default_factory=list)
    #: Why the batch ended early: the broker was unavailable.
    away: Exception | None = None

    def __bool__(self) -> bool:
        """Was anything tried, or set aside?"""
        return bool(self.published or self.failed or self.set_aside)

    @property
    def positions(self) -> list[int]:
        """The positions of all messages that were tried, or set aside."""
        return [message.pk for message in (*self.published, *self.failed, *self.set_aside)]


@dataclass(eq=False, repr=False)
class Relay:
    """Publishes from the database `using`, up to `size` messages per batch, until `stopping`
    returns true.
    """

    publish: Publish
    _: KW_ONLY
    using: str
    size: int = 100
    #: Only messages that are due now, so that none is tried twice?
    once: bool = False
    #: Deaths in a message's attempts after which it is set aside.
    max_attempts: int = MAX_ATTEMPTS
    stopping: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self._taker = Taker(
            using=self.using, size=self.size, due_at=utcnow() if self.once else None
        )
        #: After a batch with failures, only messages that have never failed are taken for as long
        #: as that batch took: otherwise attempts that time out could take all of the time.
        self._rather_new_until = 0.0

    def batch(self) -> RelayedBatch:
        """Publish due messages, and delete those that the broker has confirmed.

        Runs at most seven statements, however large the batch; one more for each message that
        failed, for all that it did not come to, and for each 1,000 that wait or that other relays
        hold. Raises what the database raises; messages that were published by then are published
        again. Raises `ConfigurationError` on a connection that is not in autocommit, where the
        deletion would not be committed, and on one that a publisher has left in another schema.
        """
        connection = connections[self.using]
        # Atomic() would not COMMIT.
        if not (connection.in_atomic_block or connection.get_autocommit()):
            raise ConfigurationError(
                f"The connection {self.using!r} is not in autocommit, so what is published "
                "would not be forgotten. "
                'Take "AUTOCOMMIT": False out of DATABASES; the relay opens its own transactions.'
            )
        if not self._taker.locks_rows and not self._taker.any_due():
            return RelayedBatch()  # takes no lock
        began = time.monotonic()
        rather_new = began < self._rather_new_until
        with transaction.atomic(using=self.using, durable=True):
            noted, batch = self._begun(self._taker.take(rather_new=rather_new))
        if noted:
            opened = connection.connection
            # Django-tenants: its schema is the one that is relayed.
            tenant = getattr(connection, "tenant", None)
            try:
                with transaction.atomic(using=self.using, durable=True):
                    batch = self._published_of(noted)
            except (ConfigurationError, Error) as error:
                # Whatever else leaves the batch may be the fault of a message, as a death would be.
                # Its transaction could not even be rolled back.
                broke = connection.connection is not opened
                if broke or isinstance(error, ConfigurationError) or lost_race(error):
                    self._not_made(noted, tenant)
                raise
        if batch.failed and not (rather_new or self.once):
            self._rather_new_until = 2 * time.monotonic() - began
        return batch

    def _begun(self, taken: list[Message]) -> tuple[list[Message], RelayedBatch]:
        """Note that the attempt of these messages begins, and return them.

        One in which relays die too often is set aside.

        Call it in the transaction that took them.
        """
        batch = RelayedBatch()
        if not taken:
            return [], batch
        suspect = taken[0]
        # The first death may have been another's: it was not alone.
        if suspect.unended >= max(self.max_attempts, 2):
            batch.set_aside.append(suspect)
            self._set_aside(suspect)
            return [], batch
        for message in taken:
            message.unended += 1
        if suspect.unended == 1:
            self._taker.begin(taken)
            return taken, batch
        # This is what is known of it if its relay dies again. A publisher is told how often it has
        # failed before.
        suspect.attempts += 1
        suspect.last_error = _died(suspect.unended)
        suspect.not_before = _next_attempt(suspect.attempts)
        self._taker.note(suspect)
        logger.warning(_SUSPECT, suspect.message_id, suspect.topic, suspect.attempts)
        suspect.attempts -= 1
        return taken, batch

    def _set_aside(self, message: Message) -> None:
        message.last_error = _died(message.unended)
        message.not_before = SET_ASIDE
        self._taker.note(message)
        MESSAGES.record(outcome="set_aside")
        logger.error(_SET_ASIDE, message.message_id, message.topic, message.last_error)

    def _published_of(self, noted: Sequence[Message]) -> RelayedBatch:
        """Lock noted messages again, publish them, and write how each attempt has ended.

        Call it in a transaction.
        """
        held, cut_off = self._taker.hold(noted)
        batch = self._published(held)
        stayed = not batch.published or self._taker.forget(batch.published)
        for message in batch.failed:  # each by its position: see forget()
            stayed = self._taker.note(message) and stayed
        if not stayed:
            raise ConfigurationError(
                f"The publisher has left the connection {self.using!r} in another schema, "
                "or has deleted messages. "
                "All of the batch is published again. Let the publisher restore the "
                "schema: with schema_context(…)."
            )
        tried = set(batch.positions)
        untried = [message for message in held if message.pk not in tried]
        self._taker.unbegin([*untried, *cut_off])
        return batch

    def _not_made(self, noted: Sequence[Message], tenant: Any) -> None:
        """Note that no attempt was made of messages, as far as the database can be asked.

        The error is not theirs.

        It is noted in their own schema, even if a publisher has left the connection in that of
        another tenant.
        """
        connection: Any = connections[self.using]
        if tenant is not None:
            connection.set_tenant(tenant)
        with suppress(Error), transaction.atomic(using=self.using, durable=True):
            held, cut_off = self._taker.hold(noted)
            self._taker.unbegin([*held, *cut_off])

    def _published(self, taken: Sequence[Message]) -> RelayedBatch:
        batch = RelayedBatch()
        waiting = set[str]()
        until = time.monotonic() + (LONGEST if self._taker.locks_rows else LONGEST_ALONE)
        for message in taken:
            if self.stopping() or (batch and time.monotonic() > until):
                break
            if message.key in waiting:
                continue
            try:
                self._publish_apart(message)
            except Exception as error:  # noqa: BLE001 - the project's publisher
                _count(message, "failed")
                batch.failed.append(_note(message, error))
                if isinstance(error, AWAY):
                    batch.away = error
                    break
                if message.key:
                    waiting.add(message.key)
            else:
                _count(message, "published")
                batch.published.append(message)
        return batch

    def _publish_apart(self, message: Message) -> None:
        """Publish in a savepoint: what a failed publisher wrote is undone, since others share the
        transaction.
        """
        own = _Savepoint(self.using)
        try:
            with connections[self.using].execute_wrapper(own):
                message.open()
                refuse_promise(self.publish(message))
        except Exception:
            own.roll_back()
            raise


def _count(message: Message, outcome: str) -> None:
    MESSAGES.record(outcome=outcome)
    if outcome == "published":
        LAG.record(max(0.0, (utcnow() - message.created_at).total_seconds()))


class _Savepoint:
    """A savepoint that is made before the publisher's first statement on our connection."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._id: str | None = None

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if self._id is None:
            self._id = ""  # making it runs a statement itself
            self._id = connections[self._using].savepoint()
        return execute(sql, params, many, context)

    def roll_back(self) -> None:
        if self._id:
            transaction.set_rollback(False, using=self._using)
            connections[self._using].savepoint_rollback(self._id)


def _note(message: Message, error: Exception) -> Message:
    """Return a copy of a message that says why it failed, and when to retry it.

    The message itself still says what is in the database, if the transaction that would note this
    is rolled back.
    """
    failed = copy(message)
    failed.attempts += 1
    failed.unended = 0
    failed.not_before = _next_attempt(failed.attempts)
    failed.last_error = describe_error(error)
    logger.warning(
        _NOT_PUBLISHED, failed.message_id, failed.topic, failed.attempts, failed.last_error
    )
    return failed


def _next_attempt(attempts: int) -> datetime:
    """Return when a message is tried again that has failed so often."""
    wait = min(BACK_OFF * 2 ** min(attempts - 1, 30), LONGEST_BACK_OFF)
    return utcnow() + timedelta(seconds=wait)


def _died(times: int) -> str:
    return f"{times} attempts to publish this message did not end: their relays died"


def describe_error(error: BaseException) -> str:
    """Return an error's message, shortened, on one line and without secrets."""
    said = _USERINFO.sub("//[redacted]@", redaction.text(" ".join(str(error).split())))
    # PostgreSQL rejects U+0000, and every database half a surrogate pair. A note must not stop the
    # relay.
    said = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in said)
    return f"{type(error).__name__}: {said}"[:255].removesuffix(": ")
