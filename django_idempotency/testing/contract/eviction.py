"""Records that vanish between two steps: purged, evicted, or deleted by a person."""

from __future__ import annotations

import threading
import time
from collections import Counter
from uuid import UUID

import pytest

from ...core.conclusions import SettledState
from ...core.interventions import CHANGES, Intervention, expired_now, released
from ...core.records import Guarantee, Record
from ...core.rules import Busy, Execute, Replay
from ...stores.base import BaseStore
from ...stores.wrapper import innermost
from ..tickets import make_ticket
from .base import Contract
from .workers import claimed, together


class Eviction(Contract):
    """Tests with `vanish`. Nothing raises, and nothing is written for a record that is gone."""

    def test_vanished_before_the_settle(self, store: BaseStore) -> None:
        """A vanished record cannot be settled in any way; the key is as new."""
        self.need("vanish")
        for leave in (SettledState.COMPLETED, SettledState.FREE, SettledState.BOUND):
            ticket = make_ticket(key=leave.value)
            run = self.claim(store, ticket)
            self.vanish(store, ticket)
            assert self.settle(store, ticket, leave, run, self.outcomes[0]) is False
            assert store.get(ticket.id) is None
            assert self.claim(store, make_ticket(key=leave.value, body=b"other")) == Execute(attempt=1)
            assert self.settle(store, ticket, leave, run, self.outcomes[0]) is False

    def test_vanished_before_the_renewal(self, store: BaseStore) -> None:
        """The lease of a vanished record is not renewed; the others are."""
        self.need("vanish")
        tickets = [make_ticket(key=f"{number}") for number in range(3)]
        for ticket in tickets:
            store.claim(ticket)
        self.vanish(store, tickets[1])
        assert store.renew(tickets) == {tickets[0].owner, tickets[2].owner}
        assert store.renew(tickets[1:2]) == set()
        assert store.get(tickets[1].id) is None

    def test_vanished_before_the_takeover(self, store: BaseStore) -> None:
        """After a lapsed, a released or a completed record has vanished, the next claim is the first."""
        self.need("vanish")
        for number, leave in enumerate((None, SettledState.BOUND, SettledState.COMPLETED)):
            ticket = make_ticket(key=f"{number}")
            store.claim(ticket)
            if leave is not None:
                self.leave(store, ticket, leave, self.outcomes[0])
            self.elapse(store, ticket.lease + 1)
            self.vanish(store, ticket)
            assert self.claim(store, make_ticket(key=f"{number}", body=b"other")) == Execute(attempt=1)

    def test_vanished_before_the_operator(self, store: BaseStore) -> None:
        """The record on an operator's screen is gone."""
        self.need("vanish")
        ticket = make_ticket()
        self.complete(store, ticket)
        self.vanish(store, ticket)
        assert store.change(ticket.id, released, audit=lambda _: None) is Intervention.GONE
        assert store.change(ticket.id, expired_now, audit=lambda _: None) is Intervention.GONE

    @pytest.mark.parametrize("verb", ["release", "expire", "erase"])
    @pytest.mark.parametrize("ended", [None, SettledState.COMPLETED])
    def test_vanished_as_an_operator_intervenes(
        self, store: BaseStore, monkeypatch: pytest.MonkeyPatch, verb: str, ended: SettledState | None
    ) -> None:
        """A record that vanishes between the operator's read and write is gone: nothing binds the next request."""
        self.need("vanish")
        ticket, audited, inner = make_ticket(), list[Record](), innermost(store)
        run = self.claim(store, ticket)
        if ended is not None:
            self.settle(store, ticket, ended, run, self.outcomes[0])
        self.elapse(store, ticket.lease + 1)
        read, seen = inner.get, list[Record]()

        def read_and_vanish(record_id: UUID) -> Record | None:
            record = read(record_id)
            if record is not None and not seen:
                seen.append(record)
                self.vanish(store, ticket)
            return record

        monkeypatch.setattr(inner, "get", read_and_vanish)
        found = store.change(ticket.id, CHANGES[verb], audit=audited.append)
        if not seen:
            pytest.skip(f"{type(inner).__name__} reads the record under its lock.")
        assert (found, audited) == (Intervention.GONE, [])
        other = make_ticket(body=b"other")
        run = self.claim(store, other)
        assert (run.attempt, run.takeover) == (1, False)

    def test_vanished_before_the_guard(self, store: BaseStore) -> None:
        """The guard finds nothing to lock."""
        self.need("vanish")
        if store.supports_atomic:
            ticket = make_ticket(guarantee=Guarantee.ATOMIC)
            store.claim(ticket)
            self.vanish(store, ticket)
            with store.guard(ticket) as guard:
                assert (guard.committed, guard.record) == (False, None)

    def test_vanishing_all_the_time(self, store: BaseStore) -> None:
        """Many claim and settle one key while it is deleted again and again: no call raises."""
        self.need("vanish")
        if not self.shared:
            return
        ticket, claimers = make_ticket(), 4
        ended = threading.Barrier(claimers + 1)

        def live(store: BaseStore) -> Counter[str]:
            seen: Counter[str] = Counter()
            try:
                for _ in range(10):
                    mine = make_ticket(lease=0)
                    verdict = claimed(mine, store)
                    seen[type(verdict).__name__] += 1
                    if isinstance(verdict, Execute):
                        store.renew([mine])
                        self.settle(store, mine, SettledState.COMPLETED, verdict, self.outcomes[0])
            finally:
                ended.wait(60)
            return seen

        def delete(store: BaseStore) -> Counter[str]:
            while ended.n_waiting < claimers:
                self.vanish(store, ticket)
                time.sleep(0.002)
            ended.wait(60)
            return Counter()

        seen = sum(together(store, [delete, *[live] * claimers]), Counter[str]())
        assert set(seen) <= {verdict.__name__ for verdict in (Execute, Replay, Busy)}
        assert sum(seen.values()) == 10 * claimers
        assert seen["Execute"] > 0
