"""A sealed store keeps the contract of the store inside it, and hands inwards nothing that can be
read.
"""

from __future__ import annotations

from typing import Any

import pytest

from django_idempotency.contrib.at_rest.sealed import Keyring, SealedStore
from django_idempotency.contrib.at_rest.sealed.store import Resealing
from django_idempotency.core import rules
from django_idempotency.core.at_rest import SEALED, is_sealed
from django_idempotency.core.conclusions import SettledState
from django_idempotency.core.interventions import expired_now
from django_idempotency.core.records import (
    CANCELLATION,
    MISSING,
    TRACE,
    Outcome,
    OutcomeKind,
    Record,
    Ticket,
    kind_of,
)
from django_idempotency.core.rules import Replay, Unreadable
from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.layered import LayeredStore
from django_idempotency.stores.layered.caches import LocalCache
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing import StoreContract
from django_idempotency.testing.contract.base import Contract
from django_idempotency.testing.contract.claims import Guards
from django_idempotency.testing.tickets import make_ticket

from ....stores import test_memory
from ....stores.helpers import committed
from ....stores.orm.test_store import ORMStoreContract
from ....stores.test_memory import Clock
from .keys import FIRST, SECOND

CANARY = "canary-7f3a"
ANSWER = Outcome(201, (("Location", f"/{CANARY}/"),), f'{{"iban": "{CANARY}"}}'.encode())


def complete(store: BaseStore, ticket: Ticket, outcome: Outcome) -> bool:
    return Contract().leave(store, ticket, SettledState.COMPLETED, outcome)


class TestSealedMemory(test_memory.TestMemoryStore):
    """Over the store in memory, in every respect."""

    @pytest.fixture
    def store(self) -> Any:
        return SealedStore(MemoryStore(clock=Clock()), Keyring([FIRST]))

    def elapse(self, store: Any, seconds: float) -> None:
        super().elapse(store.store, seconds)

    def vanish(self, store: Any, ticket: Ticket) -> None:
        super().vanish(store.store, ticket)


@pytest.mark.either_server
@committed
class TestSealedRows(Guards, Contract):
    """Over rows: what a guard locks is open."""

    elapse = ORMStoreContract.elapse
    vanish = ORMStoreContract.vanish

    @pytest.fixture
    def store(self) -> SealedStore:
        return SealedStore(ORMStore(), Keyring([FIRST]))


def outcomes() -> list[Outcome]:
    result = OutcomeKind.RESULT.outcome(b"\x01[1]")
    traced = result._replace(headers=(*result.headers, (TRACE, "00-ab-cd-01")))
    return [
        *StoreContract.outcomes,
        ANSWER,
        result,
        traced,
        Outcome(200, ((":reason", "Fine"),), b"x" * 5000),
    ]


@pytest.mark.unit
@pytest.mark.parametrize("outcome", outcomes())
def test_every_response_comes_back(outcome: Outcome) -> None:
    """Status, headers, pseudo headers and body; a long body is deflated before it is sealed."""
    store = SealedStore(inner := MemoryStore(), Keyring([FIRST]))
    ticket = make_ticket()
    complete(store, ticket, outcome)
    assert claimed(store, ticket).outcome == outcome
    kept = claimed(inner, ticket).outcome
    assert kept is not None
    assert kept.status == outcome.status
    assert is_sealed(kept)
    assert (kept.body is MISSING) == (outcome.body is MISSING)
    if outcome.body == b"x" * 5000:
        assert len(kept.body) < 200  # type: ignore[arg-type]


def claimed(store: BaseStore, ticket: Ticket) -> Record:
    record = store.get(ticket.id)
    assert record is not None
    return record


@pytest.mark.unit
@pytest.mark.parametrize("mark", [CANCELLATION, OutcomeKind.HELD.outcome()])
def test_our_own_marks_stay(mark: Outcome) -> None:
    """A cancelled or held record is recognised without a key: it says nothing about anyone."""
    store = SealedStore(inner := MemoryStore(), Keyring([FIRST]))
    complete(store, make_ticket(), mark)
    assert claimed(inner, make_ticket()).outcome == mark


@pytest.mark.unit
def test_swapped_responses() -> None:
    """Two ciphertexts that change places open in neither, and no work runs again."""
    store = SealedStore(inner := MemoryStore(), Keyring([FIRST]))
    mine, theirs = make_ticket(key="mine"), make_ticket(key="theirs")
    for ticket in (mine, theirs):
        complete(store, ticket, ANSWER)
    swap = {
        mine.id.int: claimed(inner, theirs).outcome,
        theirs.id.int: claimed(inner, mine).outcome,
    }
    for name, outcome in swap.items():
        inner._records[name] = inner._records[name]._replace(outcome=outcome)
    for key in ("mine", "theirs"):
        assert_not_stored(store, make_ticket(key=key))


def assert_not_stored(store: BaseStore, ticket: Ticket) -> None:
    verdict = rules.read(store.claim(ticket), ticket)
    assert verdict == Replay(outcome=Outcome(status=201, body=MISSING), attempt=1)


@pytest.mark.unit
def test_another_status() -> None:
    """A refusal cannot be made of a success, nor a header or body be moved."""
    store = SealedStore(inner := MemoryStore(), Keyring([FIRST]))
    complete(store, make_ticket(), ANSWER)
    (record,) = inner._records.values()
    assert record.outcome is not None
    for changed in (
        record.outcome._replace(status=402),
        record.outcome._replace(body=record.outcome.body[:-1]),  # type: ignore[index]
        record.outcome._replace(body=b""),
        record.outcome._replace(headers=((":sealed", "no base64"),)),
    ):
        inner._records[record.id.int] = record._replace(outcome=changed)
        found = claimed(store, make_ticket()).outcome
        assert found is not None
        assert rules.readable(found) == Outcome(status=changed.status, body=MISSING)


@pytest.mark.unit
@pytest.mark.parametrize("place", range(len(SEALED)))
def test_a_damaged_marker(place: int) -> None:
    """One byte of it changes, into any other: what is sealed is never taken for a response."""
    store = SealedStore(inner := MemoryStore(), Keyring([FIRST]))
    complete(store, make_ticket(), ANSWER)
    (record,) = inner._records.values()
    assert record.outcome is not None
    ((_, sealed),) = record.outcome.headers
    for byte in set(range(128)) - {ord(SEALED[place])}:
        name = SEALED[:place] + chr(byte) + SEALED[place + 1 :]
        inner._records[record.id.int] = record._replace(
            outcome=record.outcome._replace(headers=((name, sealed),))
        )
        assert rules.read(claimed(store, make_ticket()), make_ticket()) == Unreadable(), name
        assert store.reseal(record.id) is Resealing.CLOSED, name


@pytest.mark.unit
def test_keys_that_are_gone() -> None:
    """Without the key, and without any, the work is done and its response is not stored."""
    inner = MemoryStore()
    complete(SealedStore(inner, Keyring([FIRST])), make_ticket(), ANSWER)
    assert_not_stored(SealedStore(inner, Keyring([SECOND])), make_ticket())
    assert_not_stored(inner, make_ticket())  # as with ENCRYPTION_KEYS taken out


@pytest.mark.unit
def test_rows_from_before() -> None:
    """A response that was stored before there were keys is replayed."""
    inner = MemoryStore()
    complete(inner, make_ticket(), ANSWER)
    assert claimed(SealedStore(inner, Keyring([FIRST])), make_ticket()).outcome == ANSWER


@pytest.mark.unit
def test_a_lost_key_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An operator learns of it, and the log has nothing of the response."""
    inner = MemoryStore()
    complete(SealedStore(inner, Keyring([FIRST])), make_ticket(), ANSWER)
    SealedStore(inner, Keyring([SECOND])).claim(make_ticket())
    assert "cannot be opened" in caplog.text
    assert CANARY not in caplog.text


@pytest.mark.unit
def test_the_front_has_sealed_copies() -> None:
    """The sealing lies outside of the layers: a front and its store have the same bytes, and a
    replay from it opens.
    """
    front = LocalCache()
    store = SealedStore(LayeredStore(front=front, authority=MemoryStore()), Keyring([FIRST]))
    complete(store, make_ticket(), ANSWER)
    copy = front.peek(make_ticket().id)
    assert copy is not None
    assert is_sealed(copy.outcome)
    assert CANARY not in repr(copy)
    assert store.claim(make_ticket()).outcome == ANSWER


@pytest.mark.unit
def test_a_scan_opens() -> None:
    """With bodies they are open; without them the headers are, so the kind of a function's outcome
    is known.
    """
    store = SealedStore(MemoryStore(), Keyring([FIRST]))
    outcome = OutcomeKind.ERROR.outcome(b"{}")
    complete(store, make_ticket(), outcome)
    for bodies in (True, False):
        (batch,) = store.scan(bodies=bodies)
        found = batch.records[0].outcome
        assert kind_of(found) is OutcomeKind.ERROR
        assert found is not None
        assert found.body == (outcome.body if bodies else MISSING)


# ------------------------------------------------------------------------------------------- reseal


@pytest.mark.unit
@pytest.mark.parametrize(
    ("before", "after", "sealed"),
    [
        ([FIRST], [SECOND, FIRST], True),  # another key
        ([None, FIRST], [FIRST], True),  # sealed from now on
        ([FIRST], [None, FIRST], False),  # no longer sealed
    ],
)
def test_reseal(before: list[str | None], after: list[str | None], sealed: bool) -> None:
    """The response is written as the new keys ask for, and nothing else of the record changes."""
    inner = MemoryStore(clock=Clock())
    complete(SealedStore(inner, Keyring(before)), make_ticket(), ANSWER)
    old, store = claimed(inner, make_ticket()), SealedStore(inner, Keyring(after))
    assert store.reseal(old.id) is Resealing.DONE
    new = claimed(inner, make_ticket())
    assert new == old._replace(outcome=new.outcome)
    assert is_sealed(new.outcome) == sealed
    assert claimed(store, make_ticket()).outcome == ANSWER
    assert store.reseal(old.id) is Resealing.CURRENT


@pytest.mark.unit
def test_what_is_not_resealed() -> None:
    """Records without a response stay, those that no key opens stay, and those that are gone are
    reported.
    """
    inner = MemoryStore()
    store = SealedStore(inner, Keyring([SECOND, FIRST]))
    running, free, held, lost = (
        make_ticket(key=key) for key in ("running", "free", "held", "lost")
    )
    store.claim(running)
    Contract().leave(store, free, SettledState.BOUND)
    complete(store, held, OutcomeKind.HELD.outcome())
    complete(SealedStore(inner, Keyring([FIRST])), lost, ANSWER)
    for ticket in (running, free, held):
        assert store.reseal(ticket.id) is Resealing.CURRENT
    assert SealedStore(inner, Keyring([SECOND])).reseal(lost.id) is Resealing.CLOSED
    assert is_sealed(claimed(inner, lost).outcome)
    assert store.reseal(make_ticket(key="never").id) is Resealing.CHANGED


@pytest.mark.unit
def test_a_newer_settle_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the write, an operator expires the record and its next life is
    completed: that stays.
    """
    inner = MemoryStore()
    complete(SealedStore(inner, Keyring([FIRST])), make_ticket(), ANSWER)
    store, newer = SealedStore(inner, Keyring([SECOND, FIRST])), Outcome(200, (), b"newer")
    settle = inner.settle

    def overtaken(ticket: Ticket, settlement: Any) -> bool:
        monkeypatch.undo()
        inner.change(ticket.id, expired_now, audit=lambda record: None)
        complete(store, make_ticket(), newer)
        return settle(ticket, settlement)

    monkeypatch.setattr(inner, "settle", overtaken)
    assert store.reseal(make_ticket().id) is Resealing.CHANGED
    assert claimed(store, make_ticket()).outcome == newer
