"""What happens beside the work: leases are renewed, records are listed, and expired ones are
deleted; or they vanish.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from ...core.conclusions import SettledState
from ...core.interventions import Intervention
from ...core.records import MISSING, Guarantee, Status
from ...core.rules import Busy, Execute, Replay
from ...errors import ConfigurationError
from ...stores.base import BaseStore, Scanned
from ..tickets import make_ticket
from .base import Contract
from .concurrency import claimed, together

#: Values that change with time, on one side or on both.
MOMENTS = ("lease_until", "created_at", "expires_at", "purge_at", "read_at")


class Maintenance(Contract):
    """Tests of `renew`, `get` and `purge`. `retention` tests how long a record is kept."""

    def test_renewed(self, store: BaseStore) -> None:
        """One call renews the leases of several running records, each with its own length."""
        tickets = [make_ticket(key="short", lease=30), make_ticket(key="long", lease=300)]
        for ticket in tickets:
            store.claim(ticket)
        self.elapse(store, 20)
        assert store.renew(tickets) == {ticket.owner for ticket in tickets}
        for ticket in tickets:
            record = self.stored(store, ticket)
            assert abs((record.lease_until - record.read_at).total_seconds() - ticket.lease) < 1
            assert (record.status, record.owner, record.attempt) == (
                Status.RUNNING,
                ticket.owner,
                1,
            )

    def test_renewing_what_is_not_ours(self, store: BaseStore) -> None:
        """A record that was overtaken, settled, released or never claimed is not renewed or
        changed.
        """
        overtaken, completed, released, unknown, ours = (
            make_ticket(key=str(number)) for number in range(5)
        )
        store.claim(overtaken)
        self.complete(store, completed)
        self.leave(store, released, SettledState.BOUND)
        self.elapse(store, overtaken.lease + 1)
        thief = make_ticket(key=overtaken.key)
        store.claim(thief)
        store.claim(ours)
        assert store.renew([overtaken, completed, released, unknown, ours]) == {ours.owner}
        assert self.stored(store, overtaken).owner == thief.owner
        assert self.stored(store, completed).outcome == self.outcomes[0]

    def test_a_lapsed_lease_that_was_not_taken_over(self, store: BaseStore) -> None:
        """An owner whose lease has lapsed unnoticed is still the owner."""
        ticket, _ = self.lapsed(store)
        assert store.renew([ticket]) == {ticket.owner}
        assert store.claim(make_ticket()).owner == ticket.owner

    def test_renewing_work_longer_than_its_retention(self, store: BaseStore) -> None:
        """A renewal changes only the lease, and continues after the retention is over: the work
        still runs.
        """
        ticket = make_ticket(lease=40, ttl=50)
        claimed = store.claim(ticket)
        self.elapse(store, 30)
        assert store.renew([ticket]) == {ticket.owner}
        record = self.stored(store, ticket)
        kept = (each.expires_at - each.created_at for each in (record, claimed))
        assert abs((next(kept) - next(kept)).total_seconds()) < 0.1
        self.elapse(store, 30)
        assert store.renew([ticket]) == {ticket.owner}
        self.elapse(store, 30)
        assert store.claim(make_ticket()).owner == ticket.owner

    def test_renewing_beside_a_new_owner(self, store: BaseStore) -> None:
        """One process renews the former and the current owner of a key in one call: only the
        latter's lease counts.
        """
        (stale, _) = self.lapsed(store)
        thief = make_ticket(lease=300)
        store.claim(thief)
        for tickets in ([stale, thief], [thief, stale]):
            self.elapse(store, 100)
            assert store.renew(tickets) == {thief.owner}
            record = self.stored(store, thief)
            assert abs((record.lease_until - record.read_at).total_seconds() - 300) < 1

    def test_renewing_nothing(self, store: BaseStore) -> None:
        """Renewing an empty list does nothing."""
        assert store.renew([]) == set()

    # ----------------------------------------------------------------------------------------- look

    def test_a_look(self, store: BaseStore) -> None:
        """It returns the record as a claim does, without changing or taking anything."""
        ticket = make_ticket(lease=5, ttl=10)
        claimed = store.claim(ticket)
        for seconds in (0, 6, 6):  # leased, lapsed, expired
            self.elapse(store, seconds)
            looked = store.get(ticket.id)
            if looked is None:
                assert store.expires_natively  # deleted, as it declares
                return
            moved: dict[str, Any] = dict.fromkeys(MOMENTS, claimed.read_at) | {"joined": False}
            assert looked._replace(**moved) == claimed._replace(**moved)
            for name in ("lease_until", "expires_at"):
                length, claimed_length = (
                    (getattr(each, name) - each.created_at) for each in (looked, claimed)
                )
                assert abs((length - claimed_length).total_seconds()) < 0.1

    # ---------------------------------------------------------------------------------------- purge

    def test_purge(self, store: BaseStore) -> None:
        """A record past its retention and without a lease is deleted; every other record stays."""
        if store.expires_natively:
            assert store.purge(limit=100).count == 0
            return
        gone = {
            name: make_ticket(key=name, ttl=50, lease=40)
            for name in ("completed", "released", "lapsed")
        }
        spans = {"leased": (50, 100), "young": (100, 1)}
        kept = {
            name: make_ticket(key=name, ttl=ttl, lease=lease)
            for name, (ttl, lease) in spans.items()
        }
        self.complete(store, gone["completed"])
        self.leave(store, gone["released"], SettledState.FREE)
        for ticket in (gone["lapsed"], *kept.values()):
            store.claim(ticket)
        self.elapse(store, 60)
        assert store.purge(limit=100).count == len(gone)
        assert {name: self.stored(store, ticket).owner for name, ticket in kept.items()} == {
            name: ticket.owner for name, ticket in kept.items()
        }
        again = {name: store.claim(make_ticket(key=name)) for name in gone}
        assert {name: record.attempt for name, record in again.items()} == dict.fromkeys(gone, 1)

    def test_purge_in_batches(self, store: BaseStore) -> None:
        """A batch is bounded, continues where the last one ended, and reports when nothing is
        left.
        """
        if store.expires_natively:
            assert store.purge(limit=2).count == 0
            return
        for number in range(5):
            store.claim(make_ticket(key=f"key-{number}", ttl=10 + number, lease=1))
        self.elapse(store, 60)
        counts = []
        since = None
        for _ in range(4):
            counts.append((batch := store.purge(limit=2, since=since)).count)
            since = batch.resume
        assert (counts, since) == ([2, 2, 1, 0], None)


# ----------------------------------------------------------------------------------------- scanning


class Scanning(Contract):
    """Tests of `scan`. A store that cannot list its records raises `ConfigurationError`, which
    skips them.
    """

    def scanned(self, store: BaseStore, **given: int) -> list[Scanned]:
        try:
            return list(store.scan(**given))  # type: ignore[arg-type]
        except ConfigurationError as error:
            pytest.skip(str(error))

    def test_every_record_is_listed(self, store: BaseStore) -> None:
        """In each state, once while nothing is written, in batches; without bodies unless they are
        asked for.
        """
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
            stored = self.known(store, ticket)
            assert (record.scope, record.key, record.status) == (
                ticket.scope,
                ticket.key,
                stored.status,
            )
            assert (record.owner, record.purge_at) == (stored.owner, stored.purge_at)
            if stored.outcome is not None:
                assert record.outcome == stored.outcome._replace(body=MISSING)
        whole = [record for batch in store.scan(bodies=True) for record in batch.records]
        assert [record.outcome for record in whole if record.id == tickets[0].id] == [
            self.outcomes[0]
        ]

    def test_nothing_to_list(self, store: BaseStore) -> None:
        """An empty store has no records, and a batch of none does no harm."""
        assert not [record for batch in self.scanned(store) for record in batch.records]


# ----------------------------------------------------------------------------------------- eviction


class Eviction(Contract):
    """Tests with `vanish`. Nothing raises, and nothing is written for a record that is gone."""

    @pytest.mark.parametrize(
        "left", [None, SettledState.COMPLETED, SettledState.FREE, SettledState.BOUND]
    )
    def test_vanished(self, store: BaseStore, left: SettledState | None) -> None:
        """A vanished record is not settled in any way, and not renewed as its neighbours are; the
        key is as new.
        """
        self.need("vanish")
        ticket = make_ticket()
        neighbour = make_ticket(key="another")
        run = self.claim(store, ticket)
        if left is not None:
            self.settle(store, ticket, left, run, self.outcomes[0])
        self.elapse(store, ticket.lease + 1)
        self.claim(store, neighbour)
        self.vanish(store, ticket)
        for leave in (SettledState.COMPLETED, SettledState.FREE, SettledState.BOUND):
            assert self.settle(store, ticket, leave, run, self.outcomes[0]) is False
        assert store.renew([ticket, neighbour]) == {neighbour.owner}
        assert store.renew([ticket]) == set()
        assert store.get(ticket.id) is None
        assert self.claim(store, make_ticket(body=b"other")) == Execute(attempt=1)
        assert self.done(store, ticket, run) is False

    @pytest.mark.parametrize("verb", ["release", "expire", "erase"])
    @pytest.mark.parametrize("ended", [None, SettledState.COMPLETED])
    def test_vanished_as_an_operator_intervenes(
        self,
        store: BaseStore,
        monkeypatch: pytest.MonkeyPatch,
        verb: str,
        ended: SettledState | None,
    ) -> None:
        """A record that vanishes between the operator's read and write is gone: nothing binds the
        next request.
        """
        self.need("vanish")
        ticket = make_ticket()
        run = self.claim(store, ticket)
        if ended is not None:
            self.settle(store, ticket, ended, run, self.outcomes[0])
        self.elapse(store, ticket.lease + 1)
        found = self.changed_while(
            store, monkeypatch, ticket, verb, lambda: self.vanish(store, ticket)
        )
        assert found == (Intervention.GONE, [])
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
        ticket = make_ticket()
        claimers = 4
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
                        self.done(store, mine, verdict)
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
