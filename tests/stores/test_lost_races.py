"""A claim whose way is blocked by others than an owner of its key: nobody is said to be running."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_idempotency.core.records import Guarantee
from django_idempotency.core.rules import Busy, Contended, Execute, Verdict
from django_idempotency.errors import LostRace
from django_idempotency.models import IdempotencyRecord
from django_idempotency.testing.tickets import make_ticket
from testproject.payments.models import Effect

from .helpers import Call, atomic_ticket, connected_otherwise, effects, elsewhere, together

pytestmark = pytest.mark.django_db(transaction=True)

TABLE = IdempotencyRecord._meta.db_table
BOTH = pytest.mark.parametrize("guarantee", [Guarantee.ATOMIC, Guarantee.LEASE])


def on(vendor: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        f"connection.vendor != {vendor!r}", reason=f"this race is one of {vendor}"
    )


def claimed(key: str, guarantee: Guarantee = Guarantee.ATOMIC) -> Verdict:
    """Open a call under a key, and end it if it runs."""
    call = Call(make_ticket(key=key, guarantee=guarantee))
    verdict = call.open()
    if isinstance(verdict, Execute):
        call.settle()
    return verdict


# --------------------------------------------------------------------------------------- PostgreSQL


def isolated() -> dict[str, Any]:
    from django.db.backends.postgresql.psycopg_any import IsolationLevel

    return {
        "OPTIONS": {
            **connection.settings_dict["OPTIONS"],
            "isolation_level": IsolationLevel.SERIALIZABLE,
        }
    }


@on("postgresql")
def test_fresh_keys_under_serializable() -> None:
    """With SERIALIZABLE, calls with fresh keys conflict with each other: none hears of a first
    request that is running.
    """

    def calls(name: int) -> list[str]:
        said: list[str] = []
        for number in range(15):
            call = Call(make_ticket(key=f"{name}-{number}", guarantee=Guarantee.ATOMIC))
            verdict = call.open()
            said.append(type(verdict).__name__)
            if isinstance(verdict, Execute):
                Effect.objects.create(label=call.ticket.key)
                try:
                    call.settle()
                except (
                    LostRace,
                    OperationalError,
                ):  # the latter at COMMIT, as without us; its writes are gone
                    said[-1] = "rolled back"
        return said

    with connected_otherwise(**isolated()):
        said = [
            each for one in together([partial(calls, name) for name in range(8)]) for each in one
        ]
    assert set(said) <= {"Execute", "Contended", "rolled back"}
    assert effects() == said.count("Execute") > 0
    assert said.count("Contended") <= len(said) // 50  # a pause is enough for nearly all


@on("postgresql")
@BOTH
def test_a_claim_that_is_not_committed(guarantee: Guarantee) -> None:
    """A caller's open transaction has inserted the key: its owner is running, and only that is said
    to be.
    """
    with transaction.atomic():
        assert Call(atomic_ticket(key="theirs", lease=30)).open() == Execute(attempt=1)
        assert elsewhere(lambda: claimed("theirs", guarantee)) == Busy(retry_after=1)
        assert elsewhere(lambda: claimed("mine", guarantee)) == Execute(attempt=1)


@on("postgresql")
def test_a_lock_of_the_table() -> None:
    """A lock of the whole table belongs to no key: the wait for it is a lost race."""
    with connected_otherwise(
        OPTIONS={**connection.settings_dict["OPTIONS"], "options": "-c lock_timeout=50"}
    ):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {TABLE} IN SHARE MODE")
            assert elsewhere(lambda: claimed("mine")) == Contended(retry_after=1)
        assert claimed("mine") == Execute(attempt=1)


# ------------------------------------------------------------------------------------------ MariaDB


@contextmanager
def purging() -> Iterator[None]:
    """Hold what a purge under REPEATABLE READ holds until its COMMIT: the gaps beside its rows."""
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SELECT id FROM {TABLE} FOR UPDATE")
        yield


@on("mysql")
@BOTH
def test_gaps_that_a_purge_holds(guarantee: Guarantee) -> None:
    """A fresh key falls into a gap that a purge has locked: nobody runs under it, and it runs as
    soon as that ends.
    """
    with purging():
        assert elsewhere(lambda: claimed("fresh", guarantee)) == Contended(retry_after=1)
    assert claimed("fresh", guarantee) == Execute(attempt=1)


@on("mysql")
@BOTH
def test_a_claim_of_a_caller(guarantee: Guarantee) -> None:
    """A caller's open transaction has inserted the key: its owner is running."""
    with transaction.atomic():
        assert Call(atomic_ticket(key="theirs", lease=30)).open() == Execute(attempt=1)
        assert elsewhere(lambda: claimed("theirs", guarantee)) == Busy(retry_after=1)


# ------------------------------------------------------------------------------------------- SQLite


@contextmanager
def writing() -> Iterator[None]:
    """Let another connection write to SQLite's file."""
    with closing(
        sqlite3.connect(connection.settings_dict["NAME"], timeout=0, isolation_level=None)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@on("sqlite")
@BOTH
def test_the_one_writer_of_sqlite(guarantee: Guarantee) -> None:
    """While somebody else writes, a fresh key cannot be claimed: that is no first request, and it
    runs afterwards.
    """
    with connected_otherwise(OPTIONS={**connection.settings_dict["OPTIONS"], "timeout": 0.02}):
        with writing():
            assert claimed("fresh", guarantee) == Contended(retry_after=1)
        assert claimed("fresh", guarantee) == Execute(attempt=1)


@on("sqlite")
def test_a_writer_that_ends_in_time() -> None:
    """A claim is made again after a pause, so a short write of another delays it only."""
    verdicts: list[Verdict] = []

    def claim() -> None:
        verdicts.append(claimed("fresh"))
        connections.close_all()

    with connected_otherwise(OPTIONS={**connection.settings_dict["OPTIONS"], "timeout": 0.02}):
        with writing():
            thread = threading.Thread(target=claim)
            thread.start()
            thread.join(0.1)
        thread.join()
    assert verdicts == [Execute(attempt=1)]
