"""What people and tools list: every record, in batches."""

from __future__ import annotations

import pytest

from ...core.records import MISSING
from ...errors import ConfigurationError
from ...stores.base import BaseStore, Scanned
from ..tickets import make_ticket
from .base import Contract


class Scanning(Contract):
    """Tests of `scan`. A store that cannot list its records raises `ConfigurationError`, which skips them."""

    def scanned(self, store: BaseStore, **given: int) -> list[Scanned]:
        try:
            return list(store.scan(**given))  # type: ignore[arg-type]
        except ConfigurationError as error:
            pytest.skip(str(error))

    def test_every_record_is_listed(self, store: BaseStore) -> None:
        """In each state, once while nothing is written, in batches; without bodies unless they are asked for."""
        tickets = [make_ticket(key=f"key-{number}") for number in range(7)]
        for ticket in tickets[:4]:
            self.complete(store, ticket)
        for ticket in tickets[4:]:
            store.claim(ticket)
        batches = self.scanned(store, size=3)
        found = {record.id: record for batch in batches for record in batch.records}
        assert len(batches) > 1
        assert sum(len(batch.records) for batch in batches) == len(found) == 7
        for ticket in tickets:
            record = found[ticket.id]
            stored = store.get(ticket.id)
            assert stored is not None
            assert (record.scope, record.key, record.status) == (ticket.scope, ticket.key, stored.status)
            assert (record.owner, record.purge_at) == (stored.owner, stored.purge_at)
            if stored.outcome is not None:
                assert record.outcome == stored.outcome._replace(body=MISSING)
        whole = [record for batch in store.scan(bodies=True) for record in batch.records]
        assert [record.outcome for record in whole if record.id == tickets[0].id] == [self.outcomes[0]]

    def test_nothing_to_list(self, store: BaseStore) -> None:
        """An empty store has no records, and a batch of none does no harm."""
        assert not [record for batch in self.scanned(store) for record in batch.records]
