"""Writes calls down: before the first byte of each attempt, and after the response.

Every statement is its own commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, router, transaction
from django.db.models import Q, QuerySet

from ...api import Metric
from ...core.hashing import record_id
from ...errors import (
    CallChanged,
    CallHeld,
    CallInTransaction,
    CallResponseNotStored,
    LostRace,
    OperationCancelled,
)
from ...runtime.transactions import in_open_transaction
from ...stores.orm.clock import Clock
from ..at_rest.sealed import CannotOpen
from .messages import (
    Answer,
    CallFacts,
    OutgoingRequest,
    pack_answer,
    pack_request,
    reference_of,
    unpack_answer,
)
from .models import OutgoingCall
from .names import CallName
from .providers import LONGEST_DEADLINE, Provider
from .rules import UNFINISHED, CallState, KnownCall, Next, next_for

logger = logging.getLogger("django_idempotency")

#: `outcome` is a `CallState`, or "replayed".
CALLS = Metric(
    "outgoing.calls",
    "Calls to providers by how they ended.",
    ("provider", "outcome"),
    unit="{call}",
)

#: Tries of a start that others overtake.
TRIES = 10
LookUp = Callable[[OutgoingCall, Provider, str], CallState | None]
#: How long after its attempt was written down a call may be on its way: longer than any transport's
#: deadline.
ON_ITS_WAY = timedelta(seconds=LONGEST_DEADLINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An attempt that is committed, and may be sent."""

    key: str
    attempts: int
    #: Was every attempt before it refused, or is there none?
    clean: bool


class Ledger:
    """The row of one call. `margin` is how long an attempt may take; `look_up` is that of
    `lookup.py`.
    """

    def __init__(
        self,
        provider: Provider,
        name: CallName,
        request: OutgoingRequest,
        *,
        margin: float,
        look_up: LookUp,
    ) -> None:
        self._provider = provider
        self._name = name
        self._request = request
        self._look_up = look_up
        self._asks = provider.lookup is not None
        self._margin = timedelta(seconds=margin)
        self._digest = request.digest
        self._id = id_of(provider.alias, name.name)
        self._using = router.db_for_write(OutgoingCall)

    @property
    def _rows(self) -> QuerySet[OutgoingCall]:
        return OutgoingCall.objects.using(self._using).filter(pk=self._id)

    def start(self) -> Started | Answer:
        """Commit an attempt before it is sent; or return the response of an earlier one.

        Raises `CallInTransaction`, `CallChanged`, `CallHeld` and `CallResponseNotStored`; and
        `LostRace` if others write the same row all the time.
        """
        if in_open_transaction(self._using):
            raise CallInTransaction
        for _ in range(TRIES):
            row: Any = self._rows.defer("request").annotate(read_at=Clock()).first()
            times = {"lifetime": self._provider.lifetime, "margin": self._margin}
            step = next_for(_known(row), digest=self._digest, **times, asks=self._asks)
            self._refuse_others_resumption(row, step)
            if step is Next.MISMATCH:
                raise CallChanged
            if row is not None and step is Next.REPLAY:
                answer = self._stored(row)
                CALLS.record(provider=self._provider.alias, outcome="replayed")
                return answer
            if row is not None and step is Next.ASK:
                self._asks = False
                if self._look_up(row, self._provider, self._using) is CallState.HELD:
                    raise CallHeld
                continue  # that took time, and may have settled it
            if row is not None and step is Next.HOLD:
                hold(row, self._using)
                raise CallHeld
            if step is Next.STOP:
                raise OperationCancelled
            started = self._first(row) if step is Next.FIRST or row is None else self._again(row)
            if started:
                self._asks = False  # a retry knows what its own attempts came to
                self._refuse_given_up(started)
                return started
        raise LostRace

    def _refuse_given_up(self, started: Started) -> None:
        """Raise `OperationCancelled` if the step of an attempt, which is committed, has been given
        up.

        Who gives up writes that down before it looks for calls. So it finds this one, or this one
        finds that.
        """
        may_send = None if self._name.step is None else self._name.step.may_send
        if may_send is not None and not may_send():
            self.end(started, CallState.GIVEN_UP, None)
            raise OperationCancelled

    def _first(self, row: OutgoingCall | None) -> Started | None:
        """Write the first attempt. `row`: what is there, of which nothing was carried out.

        A key of the caller's or of a step, which others can compute, is never replaced.
        """
        new = OutgoingCall(
            id=self._id,
            provider=self._provider.alias,
            name=self._name.name,
            key=self._name.key or str(uuid4()),
            operation="" if self._name.step is None else self._name.step.operation,
            method=self._request.method,
            url=self._request.shown_url,
            digest=self._digest,
            state=CallState.OPEN.value,
            attempts=1,
            first_sent=Clock(),
            last_sent=Clock(),
            request=self._packed_request(),
            reference="",
        )
        if row is not None:
            values = {
                field.attname: getattr(new, field.attname) for field in new._meta.concrete_fields
            }
            del values["id"]
            if not as_seen(row, self._using).update(**values):
                return None
        else:
            try:  # in a test, another's row must not break the test's transaction
                with transaction.atomic(using=self._using):
                    new.save(force_insert=True, using=self._using)
            except IntegrityError:
                return None
        return Started(key=new.key, attempts=1, clean=True)

    def _again(self, row: OutgoingCall) -> Started | None:
        values: dict[str, Any] = {
            "state": CallState.OPEN.value,
            "attempts": row.attempts + 1,
            "last_sent": Clock(),
        }
        refused = row.state == CallState.REFUSED.value
        if refused:  # it had ended, so its request was dropped
            values["request"] = self._packed_request()
        if not as_seen(row, self._using).update(**values):
            return None
        if self._name.resumption is not None:
            self._name.resumption.attempts = row.attempts + 1
        return Started(key=row.key, attempts=row.attempts + 1, clean=refused)

    def _packed_request(self) -> bytes | None:
        """Return what the call is resumed with; `None`: it cannot be."""
        if self._provider.client is None:
            return None
        return pack_request(self._id, self._request, key_header=self._provider.header)

    def end(self, started: Started, state: CallState, answer: Answer | None) -> None:
        """Write how an attempt ended. Raises nothing that would hide a charge from the caller.

        A database that fails now is logged: the call stays open, and is resumed. So is a response
        that cannot be packed: the call succeeds without it.
        """
        status = None if answer is None else answer.status
        values: dict[str, Any] = {"state": state.value, "response_status": status}
        if answer is not None:
            values["reference"] = reference_of(answer)
        if state not in UNFINISHED:
            values["request"] = None
        if (
            state is CallState.SUCCEEDED
            and answer is not None
            and len(answer.body) <= self._provider.max_body
        ):
            values["response"] = self._packed_answer(answer)
        try:
            # A success counts, whatever another process has written of the same key. Nothing else
            # overrides another.
            mine = self._rows.filter(key=started.key).exclude(state=CallState.SUCCEEDED.value)
            if state is not CallState.SUCCEEDED:
                mine = mine.filter(attempts=started.attempts, state=CallState.OPEN.value)
            mine.update(**values)
        except Exception:  # any driver's, and a header that a column cannot hold
            logger.exception(
                "The end of a call to %s could not be written. It stays open.", self._provider.alias
            )
        CALLS.record(provider=self._provider.alias, outcome=state.value)

    def _packed_answer(self, answer: Answer) -> bytes | None:
        try:
            return pack_answer(self._id, answer)
        except Exception:
            logger.exception(
                "A response of %s could not be stored. Its call succeeded.", self._provider.alias
            )
            return None

    def _refuse_others_resumption(self, row: OutgoingCall | None, step: Next) -> None:
        """Raise `LostRace` if a call that is resumed has moved on since it was found."""
        resumption = self._name.resumption
        if resumption is None:
            return
        if row is None or step is Next.FIRST or row.attempts != resumption.attempts:
            raise LostRace

    def _stored(self, row: OutgoingCall) -> Answer:
        if row.response is None or row.response_status is None:
            raise CallResponseNotStored
        try:
            answer = unpack_answer(self._id, bytes(row.response), status=row.response_status)
        except (CannotOpen, ValueError) as error:
            raise CallResponseNotStored from error
        facts = CallFacts(
            name=self._name.name,
            key=row.key,
            attempts=row.attempts,
            stored=True,
            replayed=True,
            reference=row.reference,
        )
        return replace(answer, facts=facts)


def _known(row: Any) -> KnownCall | None:
    if row is None:
        return None
    return KnownCall(
        state=CallState(row.state), digest=bytes(row.digest), age=row.read_at - row.first_sent
    )


def give_up(operation: str) -> bool:
    """Close the calls of an operation's steps for good, but those that may be on their way.

    Are there none of those?

    A call whose time has run out may be one of them: the provider may still be working.
    """
    calls = OutgoingCall.objects.using(router.db_for_write(OutgoingCall)).filter(
        operation=operation
    )
    unfinished = Q(state__in=[state.value for state in UNFINISHED])
    sent = unfinished & Q(last_sent__gt=Clock(-ON_ITS_WAY))
    calls.exclude(sent).filter(unfinished).update(state=CallState.GIVEN_UP.value, request=None)
    return not calls.filter(sent).exists()


def as_seen(row: OutgoingCall, using: str) -> QuerySet[OutgoingCall]:
    """Return what finds a row, unless it has moved on."""
    return OutgoingCall.objects.using(using).filter(
        pk=row.pk, key=row.key, attempts=row.attempts, state=row.state
    )


def hold(row: OutgoingCall, using: str) -> bool:
    """Hold a call for a person, unless it has moved on. Return whether it is held now."""
    held = bool(as_seen(row, using).update(state=CallState.HELD.value))
    if held:
        CALLS.record(provider=row.provider, outcome=CallState.HELD.value)
    return held


def id_of(provider: str, name: str) -> UUID:
    """Name the row of a call."""
    return record_id(provider, name)
