"""A store around another one, which keeps scopes and keys as keyed hashes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from ...core.at_rest import HASHED, hashed_key, hashed_scope
from ...core.records import Record, Settlement, Ticket
from ...stores.base import BaseStore, Guard
from ...stores.wrapper import WrappedStore, reading


class HashedStore(WrappedStore):
    """Hands scopes and keys inwards as HMACs of a secret, and hands a ticket its own record by its own name.

    The record's id does not change, and no hash is ever compared (`rules.is_same_key`): records from before, and from
    another secret, are found as well. `get` and `scan` return hashes. `secret` returns the current one.
    """

    def __init__(self, store: BaseStore, secret: Callable[[], str | bytes]) -> None:
        super().__init__(store)
        self._secret = secret

    def claim(self, ticket: Ticket) -> Record:
        return _named(self.store.claim(self._hashed(ticket)), ticket)

    async def aclaim(self, ticket: Ticket) -> Record:
        """See claim()."""
        return _named(await self.store.aclaim(self._hashed(ticket)), ticket)

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        return self.store.settle(self._hashed(ticket), settlement)

    async def asettle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """See settle()."""
        return await self.store.asettle(self._hashed(ticket), settlement)

    def guard(
        self, ticket: Ticket, *, takeover: bool = False, claimed: Record | None = None
    ) -> AbstractContextManager[Guard]:
        guard = self.store.guard(self._hashed(ticket), takeover=takeover, claimed=claimed)
        return reading(guard, lambda record: _named(record, ticket))

    def _hashed(self, ticket: Ticket) -> Ticket:
        secret = self._secret()
        scope, key = hashed_scope(secret, ticket.scope), hashed_key(secret, ticket.scope, ticket.key)
        return ticket._replace(scope=scope, key=key)


def _named(record: Record, ticket: Ticket) -> Record:
    if not record.scope.startswith(HASHED):  # from before, or erased
        return record
    return record._replace(scope=ticket.scope, key=ticket.key)
