"""A store around another one, which keeps scopes and keys as keyed hashes."""

from __future__ import annotations

from collections.abc import Callable

from ...api import BaseStore, Record, Ticket
from ...core.at_rest import HASHED, hashed_key, hashed_scope
from ...stores.wrapper import WrappedStore


class HashedStore(WrappedStore):
    """Hands scopes and keys inwards as HMACs of a secret, and hands a ticket its own record by its
    own name.

    The record's id does not change, and no hash is ever compared (`rules.is_same_key`): records
    from before, and from another secret, are found as well. `get` and `scan` return hashes.
    `secret` returns the current one.
    """

    def __init__(self, store: BaseStore, secret: Callable[[], str | bytes]) -> None:
        super().__init__(store)
        self._secret = secret

    def inwards(self, ticket: Ticket) -> Ticket:
        """Return the ticket with hashes."""
        secret = self._secret()
        scope = hashed_scope(secret, ticket.scope)
        key = hashed_key(secret, ticket.scope, ticket.key)
        return ticket._replace(scope=scope, key=key)

    def outwards(self, record: Record, ticket: Ticket) -> Record:
        """Return the record under the name that the ticket has, unless it is from before, or
        erased.
        """
        return (
            record._replace(scope=ticket.scope, key=ticket.key)
            if record.scope.startswith(HASHED)
            else record
        )
