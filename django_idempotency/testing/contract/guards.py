"""The guard: what a store that supports one holds while the work runs."""

from __future__ import annotations

from typing import Any

import pytest

from ...core.conclusions import SettledState
from ...core.records import Guarantee, Status, Ticket
from ...core.rules import Execute
from ...stores.base import BaseStore
from ..tickets import make_ticket
from .base import Contract


class Guards(Contract):
    """Tests of `guard`, and of its effect on claims with `atomic`."""

    def test_no_guard_in_lease(self, store: BaseStore) -> None:
        """A `lease` guard holds nothing, so the work may take any time."""
        with store.guard(make_ticket()) as guard:
            assert (guard.committed, guard.record, guard.needs_rollback()) == (True, None, False)

    def test_after_a_commit(self, store: BaseStore) -> None:
        """What is to be done after the commit is done once, and at once if there is no transaction to wait for."""
        calls: list[str] = []
        if self.shared:
            store.after_commit(lambda: calls.append("now"))
            assert calls == ["now"]

    def test_settled_under_guard(self, store: BaseStore) -> None:
        """The guard returns our row, locked, and the response is there when the guard has ended."""
        ticket = self._atomic(store)
        run = self.claim(store, ticket)
        with store.guard(ticket) as guard:
            assert guard.record is not None
            assert (guard.committed, guard.record.owner) == (False, ticket.owner)
            assert self.settle(store, ticket, SettledState.COMPLETED, run, self.outcomes[0]) is True
        assert guard.committed is True
        assert self.stored(store, ticket).outcome == self.outcomes[0]

    def test_given_up_under_guard(self, store: BaseStore) -> None:
        """What was settled is rolled back with its transaction."""
        ticket = self._atomic(store)
        run = self.claim(store, ticket)
        with store.guard(ticket) as guard:
            self.settle(store, ticket, SettledState.COMPLETED, run, self.outcomes[0])
            guard.set_rollback()
            assert guard.needs_rollback() is True
        assert guard.committed is False
        assert self.stored(store, ticket).status is Status.RUNNING

    def test_a_takeover_under_guard(self, store: BaseStore) -> None:
        """A takeover settles the record that it locked, as a new owner and attempt; the late owner is refused."""
        first = self._atomic(store, lease=0)
        run = self.claim(store, first)
        second = make_ticket(guarantee=Guarantee.ATOMIC, request_id="req-2")
        takeover = self.claim(store, second)
        assert takeover == Execute(attempt=2, takeover=True)
        with store.guard(second, takeover=True) as guard:
            assert guard.record is not None
            settlement = self.settlement(second, SettledState.COMPLETED, takeover, self.outcomes[0], fence=guard.record)
            assert store.settle(second, settlement) is True
        record = self.stored(store, second)
        assert (record.owner, record.attempt, record.outcome) == (second.owner, 2, self.outcomes[0])
        assert record.request_id == "req-2"
        assert self.settle(store, first, SettledState.COMPLETED, run, self.outcomes[1]) is False

    def test_the_same_key_under_its_own_guard(self, store: BaseStore) -> None:
        """A row lock does not stop its own transaction, so the store does. Another key is unaffected."""
        ticket, other = self._atomic(store), make_ticket(key="other", guarantee=Guarantee.ATOMIC)
        self.claim(store, ticket)
        with store.guard(ticket):
            with store.guard(ticket._replace(owner=other.owner), takeover=True) as again:
                assert (again.committed, again.record) == (False, None)
            run = self.claim(store, other)
            with store.guard(other) as inner:
                assert inner.record is not None
                assert self.settle(store, other, SettledState.COMPLETED, run, self.outcomes[0]) is True
        assert self.stored(store, other).outcome == self.outcomes[0]

    def _atomic(self, store: BaseStore, **fields: Any) -> Ticket:
        if not store.supports_atomic:
            pytest.skip(f"{type(store).__name__} says that it cannot do `atomic`.")
        return make_ticket(guarantee=Guarantee.ATOMIC, **fields)
