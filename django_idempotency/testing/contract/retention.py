"""How long a record is kept, however its response ends, so that no later call with its key derives its keys again."""

from __future__ import annotations

import pytest

from ...core import rules
from ...core.hashing import next_operation
from ...core.interventions import CHANGES, Intervention
from ...core.records import Ticket
from ...stores.base import BaseStore
from ..tickets import make_ticket
from .base import Contract

DAY = 86400


class Retention(Contract):
    """Tests of `purge_at`."""

    @pytest.mark.parametrize("how", ["expire", "erase", "own ttl"])
    def test_a_new_life_within_the_retention(self, store: BaseStore, how: str) -> None:
        """After *Expire*, *Erase* or a shorter `ttl`, and a purge, each later operation differs from those before."""
        ticket = make_ticket(ttl=DAY)
        self._end(store, ticket, how)
        self.elapse(store, 100)
        store.purge(limit=100)
        record = store.claim(heir := make_ticket(body=b"other", ttl=DAY))
        assert (record.owner, record.attempt) == (heir.owner, 1)
        assert record.operation == next_operation(rules.operation_begun_by(ticket))
        self._end(store, heir, how)
        self.elapse(store, 100)
        store.purge(limit=100)
        later = store.claim(make_ticket(ttl=DAY))
        assert later.operation == next_operation(record.operation)

    @pytest.mark.parametrize("how", ["expire", "erase", "own ttl"])
    def test_the_end_of_the_retention(self, store: BaseStore, how: str) -> None:
        """A purge deletes the record once the claim's own retention is over."""
        ticket = make_ticket(ttl=DAY)
        self._end(store, ticket, how)
        self.elapse(store, DAY + 10)
        if store.expires_natively:
            record = store.get(ticket.id)
            assert record is None or rules.keep_until(record) <= record.read_at
            return
        assert store.purge(limit=100).count == 1
        assert store.get(ticket.id) is None

    def test_it_is_never_shortened(self, store: BaseStore) -> None:
        """A later life with a shorter retention does not shorten that of an earlier one."""
        self._end(store, make_ticket(ttl=DAY), "expire")
        heir = make_ticket(ttl=50, lease=10)
        taken = store.claim(heir)
        self.complete(store, heir, ttl=20)
        self.elapse(store, 200)
        store.purge(limit=100)
        assert store.claim(make_ticket(ttl=DAY)).operation == next_operation(taken.operation)

    def test_it_is_lengthened(self, store: BaseStore) -> None:
        """A response that is kept for longer than its claim requested is not purged before it expires."""
        ticket = make_ticket(ttl=100)
        self.complete(store, ticket, ttl=DAY)
        self.elapse(store, 1000)
        store.purge(limit=100)
        record = store.claim(make_ticket())
        assert record.outcome == self.outcomes[0]
        assert rules.keep_until(record) >= record.expires_at

    def _end(self, store: BaseStore, ticket: Ticket, how: str) -> None:
        """Complete a call, and end the retention of its response early."""
        self.complete(store, ticket, ttl=None if how in CHANGES else 50)
        if how in CHANGES:
            assert store.change(ticket.id, CHANGES[how], audit=lambda _: None) is Intervention.DONE
