"""A store around another one: what it hands inwards is sealed, what it hands outwards is open.

All copies lie inside: the fronts of a layered store have sealed ones.
"""

from __future__ import annotations

import base64
import json
import logging
import zlib
from collections.abc import Iterator
from enum import Enum
from uuid import UUID

from ....api import BaseStore, Outcome, Record, Status, Ticket
from ....core.at_rest import SEALED, is_sealed, says_nothing
from ....core.conclusions import unchanged
from ....core.interventions import Intervention, Wanted
from ....core.records import MISSING, Missing, Settlement
from ....errors import RecordUnreadable
from ....stores.base import Audit, Scanned
from ....stores.key_value import packing
from ....stores.wrapper import WrappedStore
from .keyring import CannotOpen, Keyring

logger = logging.getLogger("django_idempotency")

#: The fields of a response that are sealed, each apart: a scan reads the headers without the body.
_HEADERS = b"headers"
_BODY = b"body"


class Resealing(Enum):
    """What became of one record."""

    DONE = "done"
    CURRENT = "current"  # it was as it should be
    CLOSED = "closed"  # no key opens it
    LOCKED = "locked"  # others lock it for longer than the command tries
    # it was written or deleted meanwhile; what a request writes is sealed with the first key
    CHANGED = "changed"


class SealedStore(WrappedStore):
    """Seals the headers and the body of every response with a keyring, for the record that it
    belongs to.

    A response moved to another record, or with another status, does not open. What does not open is
    handed outwards sealed: the rules read it as done and not stored. A sealed body that is not
    marked as such is unreadable. Scope, key, path and digest are not sealed: requests, people and
    commands look records up by them.
    """

    def __init__(self, store: BaseStore, keyring: Keyring) -> None:
        super().__init__(store)
        self.keyring = keyring

    def settlement(self, ticket: Ticket, settlement: Settlement) -> Settlement:
        """Return the settlement with its response sealed."""
        if settlement.outcome is None:
            return settlement
        return settlement._replace(
            outcome=sealed_outcome(self.keyring, ticket.id, settlement.outcome)
        )

    def outwards(self, record: Record, ticket: Ticket) -> Record:
        """Return the record with its response open."""
        return self._opened(record)

    def get(self, record_id: UUID) -> Record | None:
        record = self.store.get(record_id)
        return None if record is None else self._opened(record)

    def scan(self, *, size: int = 1000, bodies: bool = False) -> Iterator[Scanned]:
        for batch in self.store.scan(size=size, bodies=bodies):
            yield Scanned(
                records=[self.opened(record) for record in batch.records],
                unreadable=batch.unreadable,
            )

    # ------------------------------------------------------------------------------ for an operator

    def change(self, record_id: UUID, wanted: Wanted, *, audit: Audit) -> Intervention:
        return self.store.change(record_id, wanted, audit=lambda record: audit(self.opened(record)))

    # -------------------------------------------------------------------------------- seal and open

    def opened(self, record: Record) -> Record:
        """Return a record with its response open, if a key opens it."""
        outcome = record.outcome
        if not is_sealed(outcome):
            damaged = (
                outcome is not None
                and outcome.body is not MISSING
                and self.keyring.has_sealed(outcome.body)
            )
            return record._replace(outcome=None) if damaged else record
        try:
            return record._replace(outcome=_open(self.keyring, record))
        except CannotOpen:
            return record

    def _opened(self, record: Record) -> Record:
        if is_sealed((record := self.opened(record)).outcome):
            logger.warning(
                "The stored response of the record %s cannot be opened: its key is not in "
                "ENCRYPTION_KEYS, or the row was "
                "changed. Its work is not run again; retries get response-not-stored.",
                record.id,
            )
        return record

    # ----------------------------------------------------------------------------------- other keys

    def is_current(self, record: Record) -> bool:
        """Is a record of the inner store's scan as this store would write it now?

        It may come without its body.
        """
        outcome = record.outcome
        if outcome is None or record.status is not Status.COMPLETED or says_nothing(outcome):
            return True
        if not is_sealed(outcome):
            return not self.keyring.seals
        return self.keyring.is_current(_unwrapped(outcome.headers[0][1]))

    def reseal(self, record_id: UUID) -> Resealing:
        """Write a stored response anew, as this store would write it now, unless the record changes
        meanwhile.

        Nothing else of the record changes, and copies in fronts are dropped.
        """
        try:
            record = self.store.get(record_id)
        except RecordUnreadable:
            return Resealing.CLOSED
        if record is None:
            return Resealing.CHANGED
        if self.is_current(record):
            return Resealing.CURRENT
        opened = self.opened(record)
        if opened.outcome is None or is_sealed(opened.outcome):
            return Resealing.CLOSED
        # A completed record changes hands before it changes, so its owner is the version that is
        # compared.
        settlement = unchanged(record)._replace(
            outcome=sealed_outcome(self.keyring, record_id, opened.outcome)
        )
        settled = self.store.settle(record.ticket(owner=record.owner), settlement)
        return Resealing.DONE if settled else Resealing.CHANGED


def sealed_outcome(keyring: Keyring, record_id: UUID, outcome: Outcome) -> Outcome:
    """Return a response as it is stored.

    A body that was not stored stays so; a long one is deflated first.
    """
    if not keyring.seals or says_nothing(outcome):
        return outcome
    place = _place(record_id, outcome.status)
    headers = keyring.seal(
        json.dumps(outcome.headers, separators=(",", ":")).encode(), *place, _HEADERS
    )
    body: bytes | Missing = MISSING
    if not isinstance(outcome.body, Missing):
        body = keyring.seal(
            packing.pack_outcome(Outcome(outcome.status, (), outcome.body)), *place, _BODY
        )
    return Outcome(outcome.status, ((SEALED, base64.b64encode(headers).decode()),), body)


def _open(keyring: Keyring, record: Record) -> Outcome:
    """Return the sealed response of a record as it was. Raises `CannotOpen`."""
    assert record.outcome is not None, "is_sealed() was asked"
    status, ((_, sealed),), body = record.outcome
    place = _place(record.id, status)
    try:
        read = json.loads(keyring.open(_unwrapped(sealed), *place, _HEADERS))
        headers = tuple((str(name), str(value)) for name, value in read)
        if isinstance(body, Missing):
            return Outcome(status, headers, MISSING)
        packed = packing.unpack_outcome(keyring.open(body, *place, _BODY))
    except (
        ValueError,
        TypeError,
        LookupError,
        RecursionError,
        zlib.error,
    ) as error:  # `Malformed` is a ValueError
        raise CannotOpen("it was sealed by a later version") from error
    return Outcome(status, headers, MISSING if packed is None else packed.body)


def _place(record_id: UUID, status: int) -> tuple[bytes, bytes, bytes]:
    return b"record", record_id.bytes, b"%d" % status


def _unwrapped(header: str) -> bytes:
    """Return the bytes of the header; none if it is damaged, which no key opens."""
    try:
        return base64.b64decode(header, validate=True)
    except ValueError:
        return b""
