"""`idempotency_stores reseal`: keys are rotated beside traffic, and what no key opens is reported."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from threading import Event
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from pytest_django import Settings

from django_idempotency.contrib.at_rest.sealed import Keyring, SealedStore
from django_idempotency.core.at_rest import is_sealed
from django_idempotency.core.conclusions import SettledState
from django_idempotency.core.records import Outcome, Ticket
from django_idempotency.errors import LostRace
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.contract.base import Contract
from django_idempotency.testing.tickets import make_ticket
from tests.contrib.at_rest.sealed.keys import FIRST, SECOND


def reseal(*args: str) -> str:
    out = StringIO()
    call_command("idempotency_stores", "reseal", *args, stdout=out, stderr=StringIO())
    return out.getvalue()


def complete(number: int) -> Ticket:
    ticket = make_ticket(key=f"key-{number}")
    outcome = Outcome(201, (), f"response {number}".encode())
    for attempt in range(20):
        try:
            Contract().leave(stores["default"], ticket, SettledState.COMPLETED, outcome)
            break
        except LostRace:
            assert attempt < 19
    return ticket


@pytest.fixture
def inner() -> Iterator[MemoryStore]:
    """Five responses, sealed with the first key; the second seals from now on."""
    inner = MemoryStore()
    with stores.replaced("default", SealedStore(inner, Keyring([FIRST]))):
        for number in range(5):
            complete(number)
    with stores.replaced("default", SealedStore(inner, Keyring([SECOND, FIRST]))):
        yield inner


@pytest.mark.any_database
@pytest.mark.django_db
def test_bounded_and_resumed(inner: MemoryStore) -> None:
    """A dry run changes nothing; a limit is kept; the next run does the rest; then there is
    none.
    """
    assert "5 of 5 responses would be resealed" in reseal("--dry-run")
    assert "2 responses resealed" in reseal("--limit", "2", "--batch-size", "1")
    assert "3 responses resealed" in reseal()
    assert "0 responses resealed" in reseal()
    with stores.replaced("default", SealedStore(inner, Keyring([SECOND]))):
        assert stores["default"].get(make_ticket(key="key-3").id).outcome.body == b"response 3"  # type: ignore[union-attr]


@pytest.mark.any_database
@pytest.mark.django_db
def test_unsealed_again(inner: MemoryStore) -> None:
    """With None as the first key."""
    with stores.replaced("default", SealedStore(inner, Keyring([None, FIRST]))):
        assert "5 responses resealed" in reseal()
    assert not any(is_sealed(record.outcome) for record in inner._records.values())


@pytest.mark.any_database
@pytest.mark.django_db
def test_a_lost_key(inner: MemoryStore) -> None:
    """What no key opens stays as it is, and is an error of the command."""
    with (
        stores.replaced("default", SealedStore(inner, Keyring([SECOND]))),
        pytest.raises(CommandError, match="5 responses cannot be opened"),
    ):
        reseal()
    assert all(is_sealed(record.outcome) for record in inner._records.values())


@pytest.mark.any_database
@pytest.mark.django_db
def test_no_keys() -> None:
    """It says what to type."""
    with (
        stores.replaced("default", MemoryStore()),
        pytest.raises(CommandError, match='"ENCRYPTION_KEYS": \\[None, the keys'),
    ):
        reseal()


@pytest.mark.either_server
@pytest.mark.django_db(transaction=True)
def test_rotation_under_traffic(settings: Settings) -> None:
    """While requests complete keys and others expire, all responses are resealed; afterwards the
    old key is not missed.
    """
    settings.IDEMPOTENCY = {"ENCRYPTION_KEYS": [FIRST]}
    known, started, over = [complete(number) for number in range(40)], Event(), Event()

    def work(worker: int) -> list[Ticket]:
        made: list[Ticket] = []
        # The command looks at these, too, and must come to an end.
        while (not over.is_set() and len(made) < 500) or not made:
            made.append(complete(1_000_000 * worker + len(made)))
            known_before = make_ticket(key=f"key-{len(made) % 40}")
            assert stores["default"].claim(known_before).outcome is not None
            started.set()
        connections.close_all()
        return made

    settings.IDEMPOTENCY = {"ENCRYPTION_KEYS": [SECOND, FIRST]}
    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(work, worker) for worker in (1, 2)]
        started.wait(10)
        try:
            assert "40 responses resealed" in reseal("--batch-size", "7")
        finally:
            over.set()
        known += [ticket for each in working for ticket in each.result()]
    settings.IDEMPOTENCY = {"ENCRYPTION_KEYS": [SECOND]}
    for ticket in known:
        outcome = stores["default"].claim(ticket._replace(owner=uuid4())).outcome
        assert outcome is not None
        assert outcome.body == f"response {ticket.key.removeprefix('key-')}".encode()
