"""How a call ends, row by row of design 3.3, with real writes: what is remembered, and what is
committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
from django.db import Error, IntegrityError, OperationalError, connection, transaction

from django_idempotency.core.conclusions import WorkResult
from django_idempotency.core.records import Status
from django_idempotency.core.rules import Execute, Replay
from django_idempotency.errors import WritesRolledBack
from testproject.payments.models import Charge, Effect

from .helpers import OUTCOME, Call, atomic_ticket, effects, elsewhere, not_sqlite, row

TOUCH = "UPDATE payments_effect SET attempt = attempt + 1 WHERE id = %s"
COMPLETED, FREE = Status.COMPLETED, Status.FREE


def clean() -> None:
    """Write, and nothing else."""


def mark() -> None:
    """As DRF's set_rollback does."""
    transaction.set_rollback(True)


def swallow_in_the_orm() -> None:
    """The ORM marks the transaction itself: its INSERT failed outside any savepoint."""
    with pytest.raises(IntegrityError):
        Effect(pk=Effect.objects.get().pk, label="twice").save(force_insert=True)


def swallow_in_a_savepoint() -> None:
    """As Django's docs recommend: nothing is marked."""
    with pytest.raises(IntegrityError), transaction.atomic():
        Effect(pk=Effect.objects.get().pk, label="twice").save(force_insert=True)


def swallow_raw_sql() -> None:
    """Only PostgreSQL ends the transaction, and only the next statement shows it (25P02)."""
    with pytest.raises(Error), connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column FROM django_idempotency_record")


def broken_by(happened: Callable[[], None]) -> bool:
    return happened is swallow_in_the_orm or (
        happened is swallow_raw_sql and connection.vendor == "postgresql"
    )


class Endings:
    @pytest.mark.parametrize(
        "happened", [clean, mark, swallow_in_the_orm, swallow_in_a_savepoint, swallow_raw_sql]
    )
    @pytest.mark.parametrize(
        ("ended", "status", "commits", "event"),
        [
            (WorkResult.KEPT, COMPLETED, True, "completed"),
            # A returned 403 that counted a failed PIN must count.
            (
                WorkResult.DROPPED,
                FREE,
                True,
                "released",
            ),
            (WorkResult.FAILED, FREE, False, "released"),
        ],
    )
    def test_row(
        self,
        ended: WorkResult,
        status: Status,
        commits: bool,
        event: str,
        happened: Callable[[], None],
    ) -> None:
        """A success is remembered with what is committed, and with nothing else."""
        call = Call()
        call.open()
        call.work()
        happened()
        kept = not broken_by(happened) and happened is not mark
        with pytest.raises(WritesRolledBack) if commits and broken_by(happened) else nullcontext():
            call.settle(ended)
        assert row(call.ticket).status == (status if kept else FREE)
        assert effects() == int(commits and kept)
        assert call.listener.events == ["claimed", event if kept else "released"]

    def test_cut(self) -> None:
        """A cancelled call rolls back and leaves its key to the lease: it may still be running
        elsewhere.
        """
        call = Call()
        call.open()
        call.work()
        call.settle(WorkResult.CUT)
        assert (row(call.ticket).status, effects(), call.listener.events) == (
            Status.RUNNING,
            0,
            ["claimed"],
        )

    def test_the_next_run(self) -> None:
        """Work that was rolled back runs again, as the next attempt; kept work does not."""
        Call().run(WorkResult.FAILED)
        assert Call().run() == Execute(attempt=2)
        assert Call().run() == Replay(outcome=OUTCOME, attempt=2)
        assert effects() == 1

    def test_an_answer_with_its_own_ttl(self) -> None:
        """A response may move its deadline; its record's creation does not change."""
        call = Call(atomic_ticket(ttl=86400))
        call.open()
        call.settle(ttl=60)
        record = row(call.ticket)
        assert 59 <= (record.expires_at - record.created_at).total_seconds() <= 62


@pytest.mark.django_db(transaction=True)
class TestAutocommit(Endings):
    """As on a server."""

    def test_a_failed_commit(self) -> None:
        """A deferred constraint fails at COMMIT: response and writes are gone, the key is free, the
        error is raised.
        """
        if connection.vendor == "mysql":
            pytest.skip("InnoDB checks every constraint at once")
        call = Call()
        call.open()
        call.work()
        Charge.objects.create(user_id=404, amount=1, currency="inr")
        with pytest.raises(IntegrityError):
            call.settle()
        assert (row(call.ticket).status, effects(), call.listener.events) == (
            FREE,
            0,
            ["claimed", "released"],
        )
        assert Call().run() == Execute(attempt=2)

    def test_on_commit_raises(self) -> None:
        """After COMMIT nothing is undone: the record stays completed, and the error is raised."""
        call = Call()
        call.open()
        call.work()
        transaction.on_commit(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            call.settle()
        assert (row(call.ticket).status, effects(), call.listener.events) == (
            COMPLETED,
            1,
            ["claimed", "completed"],
        )
        assert Call().run() == Replay(outcome=OUTCOME, attempt=1)

    def test_on_commit_runs_once(self) -> None:
        """A callback runs after the commit that includes its writes, and not after a rollback."""
        seen: list[int] = []
        for ended in (WorkResult.FAILED, WorkResult.KEPT):
            call = Call()
            call.open()
            call.work()
            transaction.on_commit(lambda: seen.append(elsewhere(effects)))
            call.settle(ended)
        assert seen == [1]

    @not_sqlite
    def test_a_swallowed_deadlock(self) -> None:
        """A deadlock that the view swallows has undone its writes against its will, so the response
        goes, too.
        """
        mine, theirs = (Effect.objects.create(label=label) for label in ("mine", "theirs"))
        call = Call()
        call.open()
        call.work()
        swallow_a_deadlock(mine, theirs)
        with pytest.raises(WritesRolledBack) as caught:
            call.settle()
        assert isinstance(caught.value.__cause__, OperationalError)
        assert sorted(Effect.objects.values_list("label", flat=True)) == ["mine", "theirs"]
        assert (row(call.ticket).status, call.listener.events) == (FREE, ["claimed", "released"])


def swallow_a_deadlock(mine: Effect, theirs: Effect) -> None:
    """Make this transaction the victim of a deadlock, and continue as if nothing had happened."""
    locked, go_on = threading.Event(), threading.Event()

    def opponent() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            if connection.vendor == "postgresql":  # the first to check is the victim
                cursor.execute("SET LOCAL deadlock_timeout = '20s'")
            else:  # InnoDB's victim is the one that has written less
                Effect.objects.bulk_create([Effect(label="ballast") for _ in range(50)])
            cursor.execute(TOUCH, [theirs.pk])
            locked.set()
            assert go_on.wait(timeout=20)
            cursor.execute(TOUCH, [mine.pk])
            transaction.set_rollback(True)

    with ThreadPoolExecutor(1) as pool, connection.cursor() as cursor:
        cursor.execute(TOUCH, [mine.pk])
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL deadlock_timeout = '300ms'")
        other = pool.submit(elsewhere, opponent)
        assert locked.wait(timeout=20)
        go_on.set()
        with pytest.raises(OperationalError, match=r"(?i)deadlock"):
            cursor.execute(TOUCH, [theirs.pk])
        other.result(timeout=20)


@pytest.mark.django_db
class TestInsideATransaction(Endings):
    """As in a test case. What the caller rolls back is undone completely; see test_callers.py."""
