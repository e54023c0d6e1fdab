"""Which messages a relay takes: a page is sorted, and heads and the messages behind them are
locked.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS, connection, transaction
from django.db.models import Q
from django.test.utils import CaptureQueriesContext

from django_idempotency.contrib.outbox import taking
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.contrib.outbox.taking import Due, Lanes, Taker, sort
from tests.support.combining import KIND

from .helpers import committed, sent, waiting

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
LATER = NOW + timedelta(seconds=1)

#: (key, back-off) at positions 1, 2, 3; heads, the messages behind, the keys that wait.
PAGES = [
    ([], [], {}, set()),
    ([("", None), ("", None)], [1, 2], {}, set()),  # without a key each is its own
    ([("", None), ("", LATER), ("", NOW)], [1, 3], {}, set()),  # due at that very instant
    ([("a", None), ("b", None), ("a", None)], [1, 2], {"a": [3], "b": []}, set()),
    ([("a", LATER), ("a", None), ("b", None)], [3], {"b": []}, {"a"}),  # behind one that waits
    # Only its first says when a key is due.
    (
        [("a", NOW), ("a", LATER), ("a", None)],
        [1],
        {"a": [2, 3]},
        set(),
    ),
    ([("a", None), ("", None), ("a", None), ("b", LATER), ("b", None)], [1, 2], {"a": [3]}, {"b"}),
    ([("a", NOW + timedelta(hours=6)), ("a", None)], [1], {"a": [2]}, set()),  # a clock was ahead
]


@pytest.mark.parametrize(("rows", "heads", "behind", "waiting"), PAGES)
def test_a_page(
    rows: list[tuple[str, datetime | None]],
    heads: list[int],
    behind: dict[str, list[int]],
    waiting: set[str],
) -> None:
    page = [(position, *row) for position, row in enumerate(rows, start=1)]
    assert sort(page, due=Due(NOW, NOW + taking.FARTHEST)) == Lanes(heads, behind, waiting)


@committed
class TestTaker:
    def take(self, taker: Taker) -> list[tuple[str, Any]]:
        with transaction.atomic():
            return [(message.key, message.payload) for message in taker.take()]

    def taker(self, size: int = 100) -> Taker:
        return Taker(using=DEFAULT_DB_ALIAS, size=size)

    def test_in_order(self) -> None:
        sent("a", "", "b", "a", "", "b")
        assert [number for _, number in self.take(self.taker())] == [0, 1, 2, 3, 4, 5]

    def test_no_more_than_its_size(self) -> None:
        """Heads come first, and messages behind one only without a gap."""
        sent("a", "a", "a", "b", "b", "")
        assert self.take(self.taker(3)) == [("a", 0), ("b", 3), ("", 5)]
        assert self.take(self.taker(4)) == [("a", 0), ("a", 1), ("b", 3), ("", 5)]
        assert self.take(self.taker(1)) == [("a", 0)]

    def test_page_by_page(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A message that waits on the first pages hides nothing on the last, and is not taken for a
        head there.
        """
        monkeypatch.setattr(taking, "PAGE", 2)
        sent("bad", "bad", "bad", "bad", "bad", "good", "bad", "good")
        Message.objects.filter(payload=0).update(
            not_before=datetime.now(timezone.utc) + timedelta(minutes=5)
        )
        assert self.take(self.taker()) == [("good", 5), ("good", 7)]

    def test_gaps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A message that another relay holds for an instant ends a run: those behind it would
        overtake it.
        """
        sent("a", "a", "a", "a")
        real = Taker._locked

        def locked(taker: Taker, positions: list[int], most: int) -> list[Message]:
            return [message for message in real(taker, positions, most) if message.payload != 2]

        monkeypatch.setattr(Taker, "_locked", locked)
        assert self.take(self.taker()) == [("a", 0), ("a", 1)]

    def test_tried_by_another_since_the_look(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A head that is no longer due when it is locked is skipped, with all behind it."""
        sent("a", "a", "b")
        real = Taker._locked

        def locked(taker: Taker, positions: list[int], most: int) -> list[Message]:
            Message.objects.filter(payload=0).update(
                not_before=datetime.now(timezone.utc) + timedelta(minutes=5)
            )
            return real(taker, positions, most)

        monkeypatch.setattr(Taker, "_locked", locked)
        assert self.take(self.taker()) == [("b", 2)]

    def test_starts_at_the_first_existing_row(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rows deleted long ago are not walked over again, and the next sweep finds a late
        commit.
        """
        taker = self.taker()
        sent("", "", "")
        late = Message.objects.order_by("pk")[0]
        Message.objects.filter(pk=late.pk).delete()
        assert len(self.take(taker)) == 2
        # Its position is from before the look, its commit from after it.
        late.save(force_insert=True)
        assert len(self.take(taker)) == 2
        monkeypatch.setattr(taking, "SWEEP", 0)
        assert len(self.take(taker)) == 3

    def test_what_waits_is_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A failed message is found again when it is due, even before the first one that has not
        failed.
        """
        monkeypatch.setattr(taking, "PAGE", 2)
        taker = self.taker()
        sent("", "", "", "")
        Message.objects.filter(Q(payload=0) | Q(payload=1)).update(
            not_before=datetime.now(timezone.utc) + timedelta(minutes=5)
        )
        assert self.take(taker) == [("", 2), ("", 3)]
        Message.objects.exclude(not_before=None).update(not_before=datetime.now(timezone.utc))
        assert self.take(taker) == [("", 0), ("", 1), ("", 2), ("", 3)]

    def test_what_was_committed_late_comes_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its position is from before the look: later messages of its key wait for it."""
        taker = self.taker()
        sent("", "a", "")
        late = Message.objects.get(key="a")
        Message.objects.filter(pk__lte=late.pk).delete()
        assert self.take(taker) == [("", 2)]
        late.save(force_insert=True)
        sent("a")
        assert self.take(taker) == [("a", 1), ("", 2), ("a", 0)]

    def test_a_failure_between_does_not_leave_a_gap(self) -> None:
        """A failed message behind one that was committed late keeps its place."""
        sent("a", "a", "a", "b")
        Message.objects.filter(payload=1).update(
            not_before=datetime.now(timezone.utc) + timedelta(minutes=5)
        )
        assert [number for _, number in self.take(self.taker())] == [0, 1, 2, 3]

    def test_a_clock_that_was_ahead_blocks_nothing(self) -> None:
        """Nothing waits for longer than the longest back-off."""
        sent("a", "a", "b")
        Message.objects.filter(payload=0).update(
            not_before=datetime.now(timezone.utc) + timedelta(hours=6)
        )
        assert [number for _, number in self.take(self.taker())] == [0, 1, 2]

    def test_forgetting_reads_no_other_row(self) -> None:
        """This holds even for a table so small that MariaDB would rather read all of it, and wait
        for others' locks.
        """
        sent(*[""] * 8)
        first = list(Message.objects.order_by("pk"))[:6]
        with CaptureQueriesContext(connection) as captured:
            assert self.taker().forget(first)
        assert [number for _, number in waiting()] == [6, 7]
        if connection.vendor == "mysql":
            sent(*[""] * 8)
            explain = "EXPLAIN FORMAT=TRADITIONAL" if KIND == "mysql" else "EXPLAIN"
            with connection.cursor() as cursor:
                cursor.execute(f"{explain} {captured[-1]['sql']}")
                names = [column[0] for column in cursor.description]
                _mine, messages = (dict(zip(names, row, strict=True)) for row in cursor.fetchall())
            assert (messages["table"], messages["type"], messages["key"]) == (
                "m",
                "eq_ref",
                "PRIMARY",
            )

    @pytest.mark.skipif("connection.vendor != 'mysql'", reason="USE is theirs")
    def test_a_publisher_that_chooses_another_database(self) -> None:
        """The relay still deletes its own messages, and none of the other database."""
        sent("", "")
        other = connection.ops.quote_name(f"{connection.settings_dict['NAME']}_other")
        table = connection.ops.quote_name(Message._meta.db_table)
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {other}")
            try:
                cursor.execute(f"CREATE TABLE {other}.{table} AS SELECT * FROM {table}")
                cursor.execute(f"USE {other}")
                assert self.taker().forget(list(Message.objects.order_by("pk")))
                cursor.execute(f"SELECT COUNT(*) FROM {other}.{table}")
                assert cursor.fetchone() == (2,)
            finally:
                cursor.execute(f"DROP DATABASE {other}")
                cursor.execute(f"USE {connection.ops.quote_name(connection.settings_dict['NAME'])}")
        assert waiting() == []

    @pytest.mark.skipif(
        "connection.vendor != 'mysql'", reason="only there is the database part of the statement"
    )
    def test_a_database_of_any_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The name of the database is never part of a format string."""
        name = f"{connection.settings_dict['NAME']} 50%s off"
        other = connection.ops.quote_name(name)
        table = connection.ops.quote_name(Message._meta.db_table)
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {other}")
            try:
                cursor.execute(f"CREATE TABLE {other}.{table} LIKE {table}")
                cursor.execute(f"USE {other}")
                sent("", "")
                with monkeypatch.context() as patch:
                    patch.setitem(connection.settings_dict, "NAME", name)
                    assert self.taker().forget(list(Message.objects.order_by("pk")))
                assert waiting() == []
            finally:
                cursor.execute(f"DROP DATABASE {other}")
                cursor.execute(f"USE {connection.ops.quote_name(connection.settings_dict['NAME'])}")
