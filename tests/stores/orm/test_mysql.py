"""MySQL has no statement that says how long it waits: the session's setting is changed for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from time import monotonic
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.db.transaction import TransactionManagementError

from django_idempotency.api import lost_race
from django_idempotency.core.rules import Busy, Contended, Execute, Replay
from django_idempotency.errors import InProgress, LostRace
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from tests.support.combining import KIND

from ..helpers import (
    OUTCOME,
    Call,
    atomic_ticket,
    committed,
    connected_otherwise,
    elsewhere,
    together,
)

pytestmark = [committed, pytest.mark.skipif(KIND != "mysql", reason="The setting is for MySQL")]


def wait_timeout() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@innodb_lock_wait_timeout")
        return int(cursor.fetchone()[0])


@pytest.fixture
def seven() -> Iterator[None]:
    """Give the connection a setting of its own."""
    with connected_otherwise(), connection.cursor() as cursor:
        cursor.execute("SET innodb_lock_wait_timeout = 7")
        yield


@pytest.fixture
def repeatable() -> Iterator[None]:
    options = {**connection.settings_dict["OPTIONS"], "isolation_level": "repeatable read"}
    with connected_otherwise(OPTIONS=options):
        yield


def test_the_setting_returns(seven: None) -> None:
    """New keys, known ones and takeovers leave the session's own setting, also inside a
    transaction.
    """
    for inside in (False, True):
        key = str(inside)
        with transaction.atomic() if inside else nullcontext():
            assert Call(make_ticket(key=key, lease=0)).open() == Execute(attempt=1)
            assert wait_timeout() == 7
            assert Call(make_ticket(key=key)).run() == Execute(attempt=2, takeover=True)
            assert Call(make_ticket(key=key)).run() == Replay(outcome=OUTCOME, attempt=2)
            assert wait_timeout() == 7


@pytest.mark.parametrize("inside", [False, True])
def test_the_setting_returns_after_an_error(inside: bool) -> None:
    """It is as before when a claim has met another's."""

    def claim() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 7")
        with transaction.atomic() if inside else nullcontext():
            with pytest.raises(InProgress):
                ORMStore().claim(atomic_ticket())
            return wait_timeout()

    with transaction.atomic():
        assert Call().open() == Execute(attempt=1)
        assert elsewhere(claim) == 7


def test_an_interrupt_ends_the_session_and_its_setting(seven: None) -> None:
    """A caller's transaction is rolled back, and the next statement has a new connection."""

    def interrupt(execute: Any, sql: str, *given: Any) -> Any:
        if sql.startswith("INSERT"):
            raise KeyboardInterrupt
        return execute(sql, *given)

    with transaction.atomic():
        with connection.execute_wrapper(interrupt), pytest.raises(KeyboardInterrupt):
            ORMStore().claim(make_ticket())
        with pytest.raises(TransactionManagementError):
            wait_timeout()
    assert wait_timeout() > 7


def test_the_end_of_a_projects_own_select_is_no_lost_race() -> None:
    """The time limit of a SELECT is ours only where we set it."""
    with connection.cursor() as cursor:
        with pytest.raises(OperationalError) as ended:
            cursor.execute(
                "SELECT /*+ MAX_EXECUTION_TIME(1) */ COUNT(*) FROM information_schema.columns AS a, "
                "information_schema.columns AS b"
            )
        assert not lost_race(ended.value)


def test_neighbours_under_repeatable_read(repeatable: None) -> None:
    """New keys in callers' transactions are no deadlock: no claim keeps the lock of a gap."""
    start = threading.Barrier(8)

    def claim(number: int) -> int:
        with transaction.atomic():
            start.wait(10)
            attempt = ORMStore().claim(atomic_ticket(key=str(number))).attempt
            start.wait(10)
            return attempt

    assert together([partial(claim, number) for number in range(8)]) == [1] * 8


@pytest.mark.parametrize("inside", [False, True])
def test_a_duplicate_under_repeatable_read(repeatable: None, inside: bool) -> None:
    """It is busy after a second."""

    def claim() -> float:
        started = monotonic()
        with transaction.atomic() if inside else nullcontext(), pytest.raises(InProgress):
            ORMStore().claim(atomic_ticket())
        return monotonic() - started

    with transaction.atomic():
        assert Call().open() == Execute(attempt=1)
        assert elsewhere(claim) < 2.5


def test_an_owner_that_was_taken_over() -> None:
    """It does not wait as long as the new owner works."""
    late = ORMStore().claim(atomic_ticket())
    new = Call()

    def begin() -> float:
        started = monotonic()
        ticket = atomic_ticket(owner=late.owner)
        with pytest.raises(LostRace), ORMStore().guard(ticket, claimed=late):
            pass
        return monotonic() - started

    assert isinstance(new.open(), Execute)
    assert elsewhere(begin) < 4
    new.settle()


def test_a_takeover_that_is_not_committed() -> None:
    """Who would take over, too, waits for a second, and not as long as the caller's transaction."""
    ORMStore().claim(make_ticket(lease=0))

    def take() -> float:
        started = monotonic()
        assert isinstance(Call(make_ticket()).open(), (Busy, Contended))
        return monotonic() - started

    with transaction.atomic():
        assert Call(make_ticket()).open() == Execute(attempt=2, takeover=True)
        assert elsewhere(take) < 2.5
