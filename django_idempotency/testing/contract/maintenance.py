"""What happens beside the work: leases are renewed, and expired records are deleted."""

from __future__ import annotations

from typing import Any

from ...core.conclusions import SettledState
from ...core.records import Status
from ...stores.base import BaseStore
from ..tickets import make_ticket
from .base import Contract

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
            assert (record.status, record.owner, record.attempt) == (Status.RUNNING, ticket.owner, 1)

    def test_renewing_what_is_not_ours(self, store: BaseStore) -> None:
        """A record that was overtaken, settled, released or never claimed is not renewed or changed."""
        overtaken, completed, released, unknown, ours = (make_ticket(key=str(number)) for number in range(5))
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
        ticket = make_ticket()
        store.claim(ticket)
        self.elapse(store, ticket.lease + 1)
        assert store.renew([ticket]) == {ticket.owner}
        assert store.claim(make_ticket()).owner == ticket.owner

    def test_renewing_work_longer_than_its_retention(self, store: BaseStore) -> None:
        """A renewal changes only the lease, and continues after the retention is over: the work still runs."""
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
        """One process renews the former and the current owner of a key in one call: only the latter's lease counts."""
        stale, thief = make_ticket(lease=30), make_ticket(lease=300)
        store.claim(stale)
        self.elapse(store, 31)
        store.claim(thief)
        for tickets in ([stale, thief], [thief, stale]):
            self.elapse(store, 100)
            assert store.renew(tickets) == {thief.owner}
            record = self.stored(store, thief)
            assert abs((record.lease_until - record.read_at).total_seconds() - 300) < 1

    def test_renewing_nothing(self, store: BaseStore) -> None:
        """Renewing an empty list does nothing."""
        assert store.renew([]) == set()

    # --------------------------------------------------------------------------------------------------------- look

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
                length, claimed_length = ((getattr(each, name) - each.created_at) for each in (looked, claimed))
                assert abs((length - claimed_length).total_seconds()) < 0.1

    # -------------------------------------------------------------------------------------------------------- purge

    def test_purge(self, store: BaseStore) -> None:
        """A record past its retention and without a lease is deleted; every other record stays."""
        if store.expires_natively:
            assert store.purge(limit=100).count == 0
            return
        gone = {name: make_ticket(key=name, ttl=50, lease=40) for name in ("completed", "released", "lapsed")}
        kept = {
            "leased": make_ticket(key="leased", ttl=50, lease=100),
            "young": make_ticket(key="young", ttl=100, lease=1),
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
        """A batch is bounded, continues where the last one ended, and reports when nothing is left."""
        if store.expires_natively:
            assert store.purge(limit=2).count == 0
            return
        for number in range(5):
            store.claim(make_ticket(key=f"key-{number}", ttl=10 + number, lease=1))
        self.elapse(store, 60)
        counts, since = [], None
        for _ in range(4):
            counts.append((batch := store.purge(limit=2, since=since)).count)
            since = batch.resume
        assert (counts, since) == ([2, 2, 1, 0], None)
