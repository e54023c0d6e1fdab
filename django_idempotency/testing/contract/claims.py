"""Which request may run: the first claim of a key, what later claims meet, when a record changes
owners; and the guard.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from ...core import rules
from ...core.conclusions import SettledState
from ...core.hashing import first_operation, next_operation
from ...core.records import Guarantee, Status, Ticket
from ...core.rules import Busy, Execute, Mismatch, Replay
from ...errors import OwnershipLost
from ...stores.base import BaseStore
from ..tickets import make_ticket
from .base import OUTCOMES, Contract, seconds
from .concurrency import together

#: How each record of `MEETINGS` was created 1,000 s ago: its lease and its retention, in seconds,
#: and how it was left.
STATES: dict[str, tuple[float, float, SettledState | None]] = {
    "released, bound": (2000, 5000, SettledState.BOUND),
    "released, unbound": (2000, 5000, SettledState.FREE),
    "running": (2000, 5000, None),
    "lapsed": (500, 5000, None),
    "completed": (500, 5000, SettledState.COMPLETED),
    "running beyond its expiry": (2000, 500, None),
    "completed, expired": (2000, 500, SettledState.COMPLETED),
    "released, expired": (2000, 500, SettledState.BOUND),
    "lapsed, expired": (500, 500, None),
}

AGAIN = Execute(attempt=2)
CRASHED = Execute(attempt=2, takeover=True)
ANEW = Execute(attempt=1)
TO_BE_BORN = Execute(attempt=1, new_life=True)
BUSY = Busy(retry_after=1000)
REPLAY = Replay(outcome=OUTCOMES[0], attempt=1)

#: Which record a claim meets, with the same request or another one; its verdict with `lease`, where
#: it takes what it can, and with `atomic`, where it leaves that to the guard.
MEETINGS: list[tuple[str, bytes, rules.Verdict, rules.Verdict]] = [
    ("released, bound", b"same", AGAIN, AGAIN),
    ("released, bound", b"other", Mismatch(), Mismatch()),
    ("released, unbound", b"same", AGAIN, AGAIN),
    ("released, unbound", b"other", AGAIN, AGAIN),  # a refused request may be corrected
    ("running", b"same", BUSY, BUSY),
    ("running", b"other", Mismatch(), Mismatch()),
    ("lapsed", b"same", CRASHED, CRASHED),
    ("lapsed", b"other", Mismatch(), Mismatch()),
    ("completed", b"same", REPLAY, REPLAY),
    ("completed", b"other", Mismatch(), Mismatch()),
    ("running beyond its expiry", b"same", BUSY, BUSY),  # work that still runs is never taken over
    ("running beyond its expiry", b"other", Mismatch(), Mismatch()),
    # beyond its expiry a record counts as absent
    ("completed, expired", b"same", ANEW, TO_BE_BORN),
    ("completed, expired", b"other", ANEW, TO_BE_BORN),
    ("released, expired", b"same", ANEW, TO_BE_BORN),
    ("released, expired", b"other", ANEW, TO_BE_BORN),
    ("lapsed, expired", b"same", ANEW, TO_BE_BORN),
    ("lapsed, expired", b"other", ANEW, TO_BE_BORN),
]


class Claims(Contract):
    """Tests of `claim`."""

    # ------------------------------------------------------------------------------------ a new key

    def test_a_new_key(self, store: BaseStore) -> None:
        """The first claim writes the complete record."""
        ticket = make_ticket(request_id="req-1")
        record = store.claim(ticket)
        for name in (
            "id",
            "scope",
            "key",
            "digest",
            "owner",
            "guarantee",
            "secret_id",
            "method",
            "path",
            "request_id",
        ):
            assert getattr(record, name) == getattr(ticket, name)
        assert (record.status, record.attempt, record.completed_at, record.outcome) == (
            Status.RUNNING,
            1,
            None,
            None,
        )
        assert abs((record.lease_until - record.read_at).total_seconds() - ticket.lease) < 1
        assert abs((record.expires_at - record.read_at).total_seconds() - ticket.ttl) < 1
        assert abs((record.created_at - record.read_at).total_seconds()) < 1
        assert record.operation == first_operation(ticket)
        assert record.read_at.utcoffset() is not None
        assert rules.read(record, ticket) == Execute(attempt=1)

    def test_fractions_of_a_second(self, store: BaseStore) -> None:
        """A lease of 1.5 s is rounded neither to 1 s nor to 2 s."""
        record = store.claim(make_ticket(lease=1.5, ttl=2.5))
        assert abs((record.lease_until - record.created_at).total_seconds() - 1.5) < 0.1
        assert abs((record.expires_at - record.created_at).total_seconds() - 2.5) < 0.1

    def test_other_keys_do_not_meet(self, store: BaseStore) -> None:
        """Another scope or key has its own record, even if a collation considers them equal."""
        tickets = [
            *(make_ticket(key=key) for key in ("k", "K", "k ")),
            make_ticket(key="k", scope="user:2"),
        ]
        assert [store.claim(ticket).owner for ticket in tickets] == [
            ticket.owner for ticket in tickets
        ]

    def test_the_longest_key(self, store: BaseStore) -> None:
        """A key of 255 characters is kept unchanged, and its last character counts."""
        one = make_ticket(key="k" * 254 + "1")
        other = make_ticket(key="k" * 254 + "2")
        assert [store.claim(ticket).key for ticket in (one, other)] == [one.key, other.key]

    def test_odd_names(self, store: BaseStore) -> None:
        """Any allowed character in a key, a scope or a path comes back unchanged."""
        odd = ("'; --", '"\\', "%s %(id)s", "{}", ":::", " a  b ", "~!#$&*()[]<>|`^?/")
        for name in (*odd, "Grüße/東京/🎌", "x" * 255):
            key = name if name.isascii() else "k"
            ticket = make_ticket(
                key=key, scope=name, path=name, method="PROPPATCH-LONGER", secret_id=""
            )
            store.claim(ticket)
            again = store.claim(
                make_ticket(key=key, scope=name)._replace(digest=b"other".ljust(32))
            )
            found = (
                again.key,
                again.scope,
                again.path,
                again.method,
                again.secret_id,
                again.digest,
            )
            assert found == (key, name, name, "PROPPATCH-LONGER", "", ticket.digest)

    def test_a_collision(self, store: BaseStore) -> None:
        """A record of another scope or key under the same id is returned unchanged, and never
        taken.
        """
        first = make_ticket()
        store.claim(first)
        for guarantee in Guarantee:
            self.elapse(store, first.ttl + 1)
            for other in (make_ticket(scope="user:2"), make_ticket(key="key-2")):
                ticket = other._replace(id=first.id, guarantee=guarantee)
                record = store.claim(ticket)
                assert (record.scope, record.key, record.owner) == (
                    first.scope,
                    first.key,
                    first.owner,
                )
                assert rules.read(record, ticket) == Mismatch()

    # ---------------------------------------------------------------------------- every row of read

    @pytest.mark.parametrize("guarantee", Guarantee)
    def test_meetings(self, store: BaseStore, guarantee: Guarantee) -> None:
        """Each row of the rules: with `lease` a takeable record is taken, and any other, or with
        `atomic`, left unchanged.
        """
        for state, body, _, _ in MEETINGS:
            lease, ttl, leave = STATES[state]
            ticket = make_ticket(key=f"{state} {body!r}", body=b"same", lease=lease, ttl=ttl)
            if leave is None:
                store.claim(ticket)
            else:
                self.leave(store, ticket, leave, OUTCOMES[0])
        self.elapse(store, 1000)
        found = {}
        expected = {}
        for state, body, in_lease, in_atomic in MEETINGS:
            ticket = make_ticket(key=f"{state} {body!r}", body=body, guarantee=guarantee)
            before = self.known(store, ticket)
            verdict = rules.read(store.claim(ticket), ticket)
            if isinstance(verdict, Busy) and 900 < verdict.retry_after <= 1000:
                verdict = BUSY  # real time has passed, too
            changed = self.known(store, ticket)._replace(read_at=before.read_at) != before
            found[state, body] = (verdict, changed)
            right = in_lease if guarantee is Guarantee.LEASE else in_atomic
            taken = guarantee is Guarantee.LEASE and isinstance(right, Execute)
            expected[state, body] = (right, taken)
        assert found == expected

    def test_our_own(self, store: BaseStore) -> None:
        """A repeated claim owns the same attempt, however late it is; once settled, it replays."""
        for guarantee in Guarantee:
            ticket = make_ticket(key=guarantee.value, guarantee=guarantee)
            assert self.claim(store, ticket) == self.claim(store, ticket) == Execute(attempt=1)
            self.elapse(store, ticket.lease + 1)
            assert self.claim(store, ticket) == Execute(attempt=1)
            self.complete(store, ticket)
            assert rules.read(store.claim(ticket), ticket) == Replay(
                outcome=self.outcomes[0], attempt=1
            )

    # ------------------------------------------------------------------------------------- takeover

    def test_a_lapsed_lease(self, store: BaseStore) -> None:
        """The next claim after the lease takes the record over, as attempt 2 with its own lease."""
        self.lapsed(store)
        second = make_ticket(lease=50)
        record = store.claim(second)
        assert (record.owner, record.attempt, record.status, record.taken) == (
            second.owner,
            2,
            Status.RUNNING,
            True,
        )
        assert store.claim(second).taken is False  # reported once
        assert abs((record.lease_until - record.read_at).total_seconds() - 50) < 1

    def test_every_attempt_counts(self, store: BaseStore) -> None:
        """After a crash, a release and a crash, attempts count up within one life, and keep the
        key's first values.
        """
        # Names a secret, and is none.
        first = make_ticket(path="/first/", secret_id="0ld")  # noqa: S106
        operation = store.claim(first).operation
        for attempt in (2, 3, 4):
            self.elapse(store, first.lease + 1)
            ticket = make_ticket(path="/later/")
            record = store.claim(ticket)
            assert (record.attempt, record.path, record.secret_id) == (attempt, "/first/", "0ld")
            assert record.operation == operation
            assert (
                abs((seconds(record, "created_at") or 0) + (attempt - 1) * (first.lease + 1)) < 10
            )
            if attempt == 3:
                self.leave(store, ticket, SettledState.BOUND)

    def test_each_owner_brings_its_request_id(self, store: BaseStore) -> None:
        """The record names the request that does the work, which is the owner's and not that of the
        first claim.
        """
        self.lapsed(store, request_id="first")
        second = make_ticket(request_id="2" * 128)
        third = make_ticket()
        claimed = store.claim(second)
        stored = self.stored(store, second)
        assert rules.original_request(claimed) == rules.original_request(stored) == "2" * 128
        self.leave(store, second, SettledState.BOUND)
        assert rules.original_request(store.claim(third)) == str(third.owner)
        self.complete(store, third)
        record = self.stored(store, third)
        assert (record.request_id, rules.original_request(record)) == ("", str(third.owner))

    # --------------------------------------------------------------------------------------- expiry

    def test_a_new_life(self, store: BaseStore) -> None:
        """After its retention a key starts again, for any request, and nothing of the old record is
        left.

        Its operation is the one that every owner of the expired record finds; it differs from that
        of the previous life.
        """
        # Names a secret, and is none.
        old = make_ticket(secret_id="0ld", method="PUT", path="/old/")  # noqa: S106
        self.complete(store, old)
        self.elapse(store, old.ttl + 1)
        new = make_ticket(body=b"other", method="PATCH")
        record = store.claim(new)
        assert (record.owner, record.digest) == (new.owner, new.digest)
        assert (record.attempt, record.status) == (1, Status.RUNNING)
        assert (record.method, record.path, record.secret_id) == (
            new.method,
            new.path,
            new.secret_id,
        )
        assert (
            record.operation
            == self.stored(store, new).operation
            == next_operation(first_operation(old))
        )
        assert (record.outcome, record.completed_at) == (None, None)
        assert abs((record.created_at - record.read_at).total_seconds()) < 1
        assert abs((record.expires_at - record.read_at).total_seconds() - new.ttl) < 1

    def test_at_the_edge(self, store: BaseStore) -> None:
        """A deadline counts from its exact moment: just before it nothing has changed, and from
        then on it is over.
        """
        # Otherwise real time passes as well, and would cross the edge.
        margin = 0.001 if self.frozen else 5.0
        lapsing = make_ticket(key="lapsing", lease=600)
        expiring = make_ticket(key="expiring", ttl=600)
        store.claim(lapsing)
        self.complete(store, expiring)
        self.elapse(store, 600 - margin)
        before = [make_ticket(key=key, lease=9, ttl=9) for key in ("lapsing", "expiring")]
        assert [type(rules.read(store.claim(ticket), ticket)) for ticket in before] == [
            Busy,
            Replay,
        ]
        self.elapse(store, margin)
        after = [make_ticket(key=key, lease=9, ttl=9) for key in ("lapsing", "expiring")]
        assert [rules.read(store.claim(ticket), ticket) for ticket in after] == [CRASHED, ANEW]

    def test_two_policies(self, store: BaseStore) -> None:
        """Each record keeps its own lease, retention and guarantee, whichever policy a later
        request has.
        """
        short = make_ticket(key="short", lease=30, ttl=600, guarantee=Guarantee.LEASE)
        long = make_ticket(key="long", lease=300, ttl=86400, guarantee=Guarantee.ATOMIC)
        for ticket in (short, long):
            store.claim(ticket)
        assert store.renew([long, short]) == {short.owner, long.owner}
        self.elapse(store, 31)
        crossed = [
            make_ticket(key="short", lease=300, ttl=86400),
            make_ticket(key="long", lease=30, ttl=600),
        ]
        records = [store.claim(ticket) for ticket in crossed]
        assert [record.owner for record in records] == [crossed[0].owner, long.owner]
        assert [record.guarantee for record in records] == [Guarantee.LEASE, Guarantee.ATOMIC]
        assert self.done(store, crossed[0], Execute(attempt=2)) is True
        assert self.complete(store, long) is True
        self.elapse(store, 3600)  # beyond the retention of the first owner, but not of the second
        replays = [make_ticket(key=key) for key in ("short", "long")]
        assert [type(rules.read(store.claim(ticket), ticket)) for ticket in replays] == [
            Replay,
            Replay,
        ]


# ------------------------------------------------------------------------------------------- guards

#: What two routes request from one store.
POLICIES: tuple[dict[str, Any], ...] = ({"lease": 30, "ttl": 600}, {"lease": 300, "ttl": 86400})


class Guards(Contract):
    """Tests of `guard`, of calls inside of others, and of its effect on claims with `atomic`."""

    def test_nested(self, store: BaseStore) -> None:
        """A nested call runs with another key; with its own key it is busy."""
        self._call(0, store)

    def test_threads(self, store: BaseStore) -> None:
        """The same in many threads under two policies: no call affects another."""
        if self.shared:
            together(store, [partial(self._call, number) for number in range(16)])

    def _call(self, number: int, store: BaseStore) -> None:
        policy = POLICIES[number % 2]
        other_policy = POLICIES[1 - number % 2]
        outer = make_ticket(key=f"outer-{number}", **policy)
        inner = make_ticket(key=f"inner-{number}", **other_policy)
        run = self.claim(store, outer)
        with store.guard(outer):
            nested = self.claim(store, inner)
            again = make_ticket(key=outer.key, **other_policy)
            verdict = rules.read(store.claim(again), again)
            assert isinstance(verdict, Busy)
            # The owner's lease, not ours.
            assert policy["lease"] - 20 < verdict.retry_after <= policy["lease"]
            with store.guard(inner):
                assert (
                    self.settle(store, inner, SettledState.COMPLETED, nested, self.outcomes[1])
                    is True
                )
        assert self.done(store, outer, run) is True
        for ticket, outcome in ((outer, self.outcomes[0]), (inner, self.outcomes[1])):
            later = make_ticket(key=ticket.key, ttl=5)
            record = store.claim(later)
            assert rules.read(record, later) == Replay(outcome=outcome, attempt=1)
            assert record.owner == ticket.owner
            assert abs((record.expires_at - record.created_at).total_seconds() - ticket.ttl) < 0.1

    def test_no_guard_in_lease(self, store: BaseStore) -> None:
        """A `lease` guard holds nothing, so the work may take any time."""
        with store.guard(make_ticket()) as guard:
            assert (guard.committed, guard.record, guard.needs_rollback()) == (True, None, False)

    def test_after_a_commit(self, store: BaseStore) -> None:
        """What is to be done after the commit is done once, and at once if there is no transaction
        to wait for.
        """
        calls: list[str] = []
        if self.shared:
            store.after_commit(lambda: calls.append("now"))
            assert calls == ["now"]

    def test_settled_under_guard(self, store: BaseStore) -> None:
        """The guard returns our row, locked. commit() writes the response and ends the guard."""
        ticket = self._atomic(store)
        run = self.claim(store, ticket)
        with store.guard(ticket) as guard:
            assert guard.record is not None
            assert (guard.committed, guard.record.owner) == (False, ticket.owner)
            settlement = self.settlement(ticket, SettledState.COMPLETED, run, self.outcomes[0])
            assert store.commit(guard, ticket, settlement) is True
            assert guard.committed is True
            assert self.stored(store, ticket).outcome == self.outcomes[0]

    def test_overtaken_under_guard(self, store: BaseStore) -> None:
        """commit() of a record that another owns commits nothing."""
        ticket = self._atomic(store)
        key = make_ticket(key="written with it")
        run = self.claim(store, ticket)
        theirs = self.known(store, ticket)._replace(owner=uuid4())
        settlement = self.settlement(
            ticket, SettledState.COMPLETED, run, self.outcomes[0], fence=theirs
        )
        with suppress(OwnershipLost), store.guard(ticket) as guard:
            store.claim(key)
            assert store.commit(guard, ticket, settlement) is False
            guard.set_rollback()
        assert guard.committed is False
        assert self.stored(store, ticket).status is Status.RUNNING
        assert store.get(key.id) is None

    def test_given_up_under_guard(self, store: BaseStore) -> None:
        """What was settled is rolled back with its transaction."""
        ticket = self._atomic(store)
        run = self.claim(store, ticket)
        with store.guard(ticket) as guard:
            self.done(store, ticket, run)
            guard.set_rollback()
            assert guard.needs_rollback() is True
        assert guard.committed is False
        assert self.stored(store, ticket).status is Status.RUNNING

    def test_a_takeover_under_guard(self, store: BaseStore) -> None:
        """A takeover settles the record that it locked, as a new owner and attempt; the late owner
        is refused.
        """
        first = self._atomic(store, lease=0)
        run = self.claim(store, first)
        second = make_ticket(guarantee=Guarantee.ATOMIC, request_id="req-2")
        takeover = self.claim(store, second)
        assert takeover == Execute(attempt=2, takeover=True)
        with store.guard(second, takeover=True) as guard:
            assert guard.record is not None
            settlement = self.settlement(
                second, SettledState.COMPLETED, takeover, self.outcomes[0], fence=guard.record
            )
            assert store.commit(guard, second, settlement) is True
        record = self.stored(store, second)
        assert (record.owner, record.attempt, record.outcome) == (second.owner, 2, self.outcomes[0])
        assert record.request_id == "req-2"
        assert self.settle(store, first, SettledState.COMPLETED, run, self.outcomes[1]) is False

    def test_the_same_key_under_its_own_guard(self, store: BaseStore) -> None:
        """A row lock does not stop its own transaction, so the store does.

        Another key is unaffected.
        """
        ticket = self._atomic(store)
        other = make_ticket(key="other", guarantee=Guarantee.ATOMIC)
        self.claim(store, ticket)
        with store.guard(ticket):
            with store.guard(ticket._replace(owner=other.owner), takeover=True) as again:
                assert (again.committed, again.record) == (False, None)
            run = self.claim(store, other)
            with store.guard(other) as inner:
                assert inner.record is not None
                settlement = self.settlement(other, SettledState.COMPLETED, run, self.outcomes[0])
                assert store.commit(inner, other, settlement) is True
        assert self.stored(store, other).outcome == self.outcomes[0]

    def _atomic(self, store: BaseStore, **fields: Any) -> Ticket:
        if not store.supports_atomic:
            pytest.skip(f"{type(store).__name__} says that it cannot do `atomic`.")
        return make_ticket(guarantee=Guarantee.ATOMIC, **fields)
