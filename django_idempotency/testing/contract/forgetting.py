"""What is known about a person is removed, and the key stays used."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from ...core import rules
from ...core.at_rest import ERASED
from ...core.conclusions import SettledState
from ...core.interventions import CHANGES, Intervention, forgotten
from ...core.records import CANCELLATION, MISSING, Outcome, OutcomeKind, Record, Ticket
from ...core.rules import Execute, Replay
from ...stores.base import BaseStore
from ..tickets import make_ticket
from .base import Contract

_SECRETS = ("who-7f3a", "key-7f3a", "path-7f3a", "request-7f3a", "body-7f3a")


def _ticket(**given: Any) -> Ticket:
    scope, key, path, request_id, _ = _SECRETS
    return make_ticket(**{"scope": scope, "key": key, "path": f"/{path}/", "request_id": request_id, **given})


def _unread(_: Record) -> None:
    """An audit that nobody reads."""


def _unwanted(record: Record) -> None:
    pytest.fail(f"{record.id} was changed")


class Forgetting(Contract):
    """Tests of `forget`."""

    def _complete(self, store: BaseStore, ticket: Ticket) -> bool:
        outcome = Outcome(201, (("Location", _SECRETS[-1]),), _SECRETS[-1].encode())
        return self.leave(store, ticket, SettledState.COMPLETED, outcome)

    def _assert_used(self, store: BaseStore, status: int) -> None:
        """A retry finds a finished record without a response, whatever it asks for, and nothing of it is known."""
        for retry in (_ticket(), _ticket(digest=b"another".ljust(32))):
            record = store.claim(retry)
            verdict = rules.read(record, retry)
            assert isinstance(verdict, Replay)
            assert (verdict.outcome.status, verdict.outcome.body) == (status, MISSING)
            assert (record.scope, record.key, record.digest) == (ERASED, ERASED, b"")
            assert not [secret for secret in _SECRETS if secret in repr(record)]

    def test_forgotten(self, store: BaseStore) -> None:
        """Of a finished record the id, the status and the times stay; what it was is audited."""
        ticket, audited = _ticket(), list[Record]()
        self._complete(store, ticket)
        before = self.stored(store, ticket)
        assert store.change(ticket.id, forgotten, audit=audited.append) is Intervention.DONE
        assert [record.scope for record in audited] == [ticket.scope]
        self._assert_used(store, 201)
        after = store.get(ticket.id)
        assert after is not None
        same = ("id", "status", "attempt", "operation", "guarantee", "method")
        assert {name: getattr(after, name) for name in same} == {name: getattr(before, name) for name in same}
        assert after.owner != before.owner
        for name in ("expires_at", "purge_at"):  # `before` may be a copy, whose deadlines come a little early
            assert abs((getattr(after, name) - getattr(before, name)).total_seconds()) < 1

    def test_forgotten_when_free(self, store: BaseStore) -> None:
        """A released key never runs again either: an earlier attempt may have had an effect."""
        ticket = _ticket()
        self.leave(store, ticket, SettledState.BOUND)
        assert store.change(ticket.id, forgotten, audit=_unread) is Intervention.DONE
        self._assert_used(store, 410)

    def test_not_forgotten_while_running(self, store: BaseStore) -> None:
        """The owner of a running record will write to it, also one whose lease has ended: it is left as it is."""
        ticket = _ticket()
        store.claim(ticket)
        for seconds in (0, ticket.lease + 1):
            self.elapse(store, seconds)
            assert store.change(ticket.id, forgotten, audit=_unwanted) is Intervention.BUSY
        record = store.get(ticket.id)
        assert record is not None
        assert (record.scope, record.key, record.owner) == (ticket.scope, ticket.key, ticket.owner)
        assert self.settle(store, ticket, SettledState.COMPLETED, Execute(attempt=1), self.outcomes[0])

    def test_marks_stay(self, store: BaseStore) -> None:
        """A held record waits for a person; a cancelled one is still known to be cancelled."""
        held, cancelled = _ticket(key="held"), _ticket()
        self.leave(store, held, SettledState.COMPLETED, OutcomeKind.HELD.outcome())
        self.leave(store, cancelled, SettledState.COMPLETED, CANCELLATION)
        assert store.change(held.id, forgotten, audit=_unwanted) is Intervention.BUSY
        assert store.change(cancelled.id, forgotten, audit=_unread) is Intervention.DONE
        record = store.get(cancelled.id)
        assert record is not None
        assert (record.outcome, record.scope) == (CANCELLATION, ERASED)

    def test_a_late_settle_of_a_forgotten_record(self, store: BaseStore) -> None:
        """A driver repeats the owner's settle: it is refused, so the response does not come back."""
        ticket = _ticket()
        self._complete(store, ticket)
        store.change(ticket.id, forgotten, audit=_unread)
        assert not self.settle(store, ticket, SettledState.COMPLETED, Execute(attempt=1), self.outcomes[0])
        self._assert_used(store, 201)

    def test_forgotten_twice(self, store: BaseStore) -> None:
        """The second time there is nothing to do, and of no record nothing is known."""
        ticket = _ticket()
        assert store.change(ticket.id, forgotten, audit=_unwanted) is Intervention.GONE
        self._complete(store, ticket)
        assert store.change(ticket.id, forgotten, audit=_unread) is Intervention.DONE
        assert store.change(ticket.id, forgotten, audit=_unwanted) is Intervention.ALREADY

    @pytest.mark.parametrize("ends", ["retention", "expire", "release"])
    def test_the_next_life_of_a_forgotten_key(self, store: BaseStore, ends: str) -> None:
        """When it is over, a request runs as a first one, and its record says again whose it is."""
        ticket = _ticket(ttl=60)
        self._complete(store, ticket)
        store.change(ticket.id, forgotten, audit=_unread)
        if ends == "retention":
            self.elapse(store, 61)
        else:
            assert store.change(ticket.id, CHANGES[ends], audit=_unread) is Intervention.DONE
        again = _ticket(owner=uuid4())
        assert self._complete(store, again)
        record = store.get(again.id)
        assert record is not None
        assert (record.scope, record.key, record.path) == (again.scope, again.key, again.path)
