"""`manage.py purge_idempotency`: what it deletes, what it keeps, and what it prints."""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta, timezone
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_idempotency.errors import LostRace, StoreUnavailable
from django_idempotency.management import base
from django_idempotency.management.commands import purge_idempotency
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.app_extensions import AppExtension, Purging
from django_idempotency.stores.base import Purged
from django_idempotency.stores.orm import ORMStore

from ..stores.helpers import atomic_ticket, elsewhere

NEVER = datetime(2000, 1, 1, tzinfo=timezone.utc)


def records(count: int, **fields: Any) -> None:
    for _ in range(count):
        ORMStore().claim(atomic_ticket(**{"key": uuid4().hex, "ttl": -60, **fields}))


def left() -> int:
    return IdempotencyRecord.objects.count()


def purge(*arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command("purge_idempotency", *arguments, stdout=out, **options)
    return out.getvalue()


@pytest.fixture
def naps(monkeypatch: Any) -> list[float]:
    """Collect the sleeps instead of sleeping."""
    taken: list[float] = []
    monkeypatch.setattr(time, "sleep", taken.append)
    return taken


@pytest.fixture
def batches(monkeypatch: Any) -> list[Any]:
    """Let `purge` return from this list; an exception in the list is raised."""
    answers: list[Any] = []

    def answer(store: ORMStore, *, limit: int, since: datetime | None = None) -> Purged:
        given = answers.pop(0)
        if isinstance(given, BaseException):
            raise given
        count, resume = given
        return Purged(count=count, resume=resume)

    monkeypatch.setattr(ORMStore, "purge", answer)
    return answers


@pytest.mark.django_db
class TestPurge:
    def test_what_goes_and_what_stays(self) -> None:
        """The purge deletes what has expired and is not held."""
        records(3)
        records(1, lease=60)  # expired, but its work still runs
        records(2, ttl=60)
        out = purge()
        assert left() == 3
        assert "3 records deleted in" in out
        assert "rows/s" in out

    def test_nothing_to_purge(self) -> None:
        records(1, ttl=60)
        assert purge() == "Nothing to purge.\n"

    def test_batches_and_naps(self, naps: list[float]) -> None:
        records(5)
        assert "5 records" in purge("--batch-size=2", "--sleep=0.5")
        assert left() == 0
        assert set(naps) == {0.5}

    @pytest.mark.parametrize("batch", ["1", "2", "3", "1000"])
    def test_limit(self, batch: str, naps: list[float]) -> None:
        """The purge ends at the limit, and does not sleep before it ends."""
        records(5)
        assert "3 records" in purge("--limit=3", f"--batch-size={batch}", "--sleep=60")
        assert left() == 2
        assert len(naps) == max(0, math.ceil(3 / int(batch)) - 1)

    def test_the_largest_numbers(self) -> None:
        records(2)
        most = 2**63 - 1
        assert "2 records would" in purge("--dry-run", f"--limit={most}")
        assert "2 records" in purge(f"--limit={most}", f"--batch-size={most}")

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([], "3 records would be deleted."),
            (["--limit=1"], "1 record would be deleted."),
            (["--limit=2"], "2 records would be deleted."),
        ],
    )
    def test_dry_run(self, arguments: list[str], words: str) -> None:
        """A dry run counts what a purge would delete, and deletes nothing."""
        records(3)
        records(1, lease=60)
        assert purge("--dry-run", *arguments).strip() == words
        assert left() == 4

    def test_dry_run_does_not_count_for_ever(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(purge_idempotency, "COUNTED", 2)
        records(3)
        assert purge("--dry-run").startswith("At least 2 records would be deleted.")

    def test_dry_run_with_nothing_to_do(self) -> None:
        assert purge("--dry-run") == "Nothing to purge.\n"

    def test_silence(self) -> None:
        records(1)
        assert purge(verbosity=0) == ""
        assert left() == 0


@pytest.mark.any_database
@pytest.mark.django_db
class TestTheEnd:
    """Without a database: the store returns what the test lists."""

    def test_a_short_batch_is_not_the_end(self, batches: list[Any], naps: list[float]) -> None:
        """Another purge may hold the rows in between; only an empty batch is the end."""
        batches += [(10, NEVER), (3, NEVER), (0, None)]
        assert "13 records" in purge("--batch-size=10")

    def test_a_batch_of_more_than_was_asked_is_not_the_end(
        self, batches: list[Any], naps: list[float]
    ) -> None:
        """A store may round up, and have seen only those that fill its batch."""
        batches += [(12, datetime.now(timezone.utc) + timedelta(minutes=1)), (1, None)]
        assert "13 records" in purge("--batch-size=10")

    def test_a_command_that_is_called_again(
        self, batches: list[Any], naps: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The second run has the whole limit, and counts records first."""
        steps = Purging(kind="step", purge=lambda *, limit: limit, due=lambda *, limit: limit)
        beside = AppExtension()
        monkeypatch.setattr(beside, "purging", lambda alias, store: [steps])
        monkeypatch.setattr(purge_idempotency, "app_extensions", lambda: [beside])
        command = purge_idempotency.Command()
        for _ in range(2):
            batches += [(3, None)]
            out = StringIO()
            call_command(command, "--limit=5", stdout=out)
            assert [line.partition(" deleted")[0] for line in out.getvalue().splitlines()] == [
                "3 records",
                "2 steps",
            ]

    def test_traffic_does_not_keep_it(self, batches: list[Any], naps: list[float]) -> None:
        """Records that expire during the purge are left for the next one."""
        batches += [(10, NEVER), (1, datetime.now(timezone.utc) + timedelta(minutes=1))]
        assert "11 records" in purge("--batch-size=10")

    def test_interrupted(self, batches: list[Any], naps: list[float]) -> None:
        """An interrupted purge says what it did: every batch is committed."""
        batches += [(10, NEVER), KeyboardInterrupt()]
        with pytest.raises(CommandError, match=r"Interrupted\. 10 records deleted") as caught:
            purge("--batch-size=10")
        assert caught.value.returncode == 130

    def test_a_lost_race_is_tried_again(self, batches: list[Any], naps: list[float]) -> None:
        batches += [LostRace(), LostRace(), (2, NEVER), (0, None)]
        assert "2 records" in purge()
        assert naps[:2] == [0.1, 0.2]

    def test_lost_races_without_end(self, batches: list[Any], naps: list[float]) -> None:
        batches += [(10, NEVER), *[LostRace() for _ in range(base.TRIES)]]
        with pytest.raises(
            CommandError, match=r"Lost the race for a batch 5 times in a row\.\n10 records deleted"
        ):
            purge("--batch-size=10")

    def test_the_store_does_not_answer(self, batches: list[Any], naps: list[float]) -> None:
        gone = StoreUnavailable()
        gone.__cause__ = OSError("connection refused")
        batches += [(10, NEVER), gone]
        with pytest.raises(
            CommandError, match=r"did not respond.*connection refused\n10 records deleted"
        ):
            purge("--batch-size=10")

    @pytest.mark.parametrize("argument", ["--dry-run", "--batch-size=10"])
    def test_a_database_that_is_not_there(self, settings: Any, argument: str) -> None:
        """An alias that DATABASES lacks is the operator's mistake, reported in a sentence."""
        settings.IDEMPOTENCY = {
            "STORES": {
                "default": {
                    "BACKEND": "django_idempotency.stores.orm.ORMStore",
                    "OPTIONS": {"using": "nowhere"},
                }
            }
        }
        with pytest.raises(CommandError, match="nowhere"):
            purge(argument)

    def test_no_such_store(self) -> None:
        with pytest.raises(CommandError, match=r"has no 'nope'\. It has 'default'"):
            purge("--store=nope")

    @pytest.mark.parametrize("arguments", [[], ["--dry-run"], ["--limit=5"]])
    @pytest.mark.parametrize(
        ("alias", "kind"), [("redis", "RedisStore"), ("layered", "RedisStore")]
    )
    def test_a_store_that_deletes_by_itself(
        self, settings: Any, arguments: list[str], alias: str, kind: str
    ) -> None:
        """The command says so without querying the store."""
        redis = {
            "BACKEND": "django_idempotency.stores.redis.RedisStore",
            "OPTIONS": {"cache": "nowhere"},
        }
        options = {"front": "redis", "authority": "redis"}
        layered = {"BACKEND": "django_idempotency.stores.layered.LayeredStore", "OPTIONS": options}
        settings.IDEMPOTENCY = {"STORES": {"redis": redis, "layered": layered}}
        assert purge(f"--store={alias}", *arguments) == (
            f"The store '{alias}' ({kind}) deletes expired records automatically. Nothing "
            "to purge.\n"
        )

    @pytest.mark.parametrize(
        "argument",
        [
            *(
                "--batch-size=0",
                "--batch-size=-1",
                "--batch-size=x",
                "--batch-size=1.5",
                "--limit=0",
                "--limit=x",
            ),
            *("--sleep=-1", "--sleep=x", "--sleep=nan", "--sleep=inf"),
            # More than a driver or a clock takes.
            *(
                "--sleep=1e30",
                f"--limit={10**30}",
                f"--batch-size={10**30}",
            ),
        ],
    )
    def test_bad_arguments(self, argument: str) -> None:
        with pytest.raises(CommandError, match="is not a"):
            purge(argument)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.any_database
@pytest.mark.django_db
class TestProgress:
    def test_on_a_terminal(self, batches: list[Any], naps: list[float]) -> None:
        """Progress is one line, overwritten, and removed at the end."""
        batches += [(10, NEVER), (0, None)]
        terminal = Terminal()
        purge("--batch-size=10", stderr=terminal)
        assert "\r10 records" in terminal.getvalue()
        assert terminal.getvalue().endswith("\r\033[K")

    @pytest.mark.parametrize(("verbosity", "lines"), [(1, 0), (2, 3)])
    def test_elsewhere(
        self, batches: list[Any], naps: list[float], monkeypatch: Any, verbosity: int, lines: int
    ) -> None:
        """Elsewhere progress is a line every few seconds, if asked for."""
        monkeypatch.setattr(base, "PACE", 0.0)
        batches += [(10, NEVER), (10, NEVER), (0, None)]
        errors = StringIO()
        purge("--batch-size=10", stderr=errors, verbosity=verbosity)
        assert len(errors.getvalue().splitlines()) == lines


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite has one writer: it queues")
def test_beside_another_purge() -> None:
    """Rows held by another purge are skipped, not waited for."""
    from django.db import transaction

    records(4)
    with transaction.atomic():
        for pk in IdempotencyRecord.objects.order_by("purge_at").values_list("pk", flat=True)[1:3]:
            IdempotencyRecord.objects.select_for_update().get(pk=pk)
        assert "2 records" in elsewhere(purge)
    assert left() == 2
    assert "2 records" in purge()


@pytest.mark.django_db(transaction=True)
def test_each_batch_is_committed() -> None:
    """Another connection sees a batch gone while the next one is in progress."""
    seen: list[int] = []
    records(4)
    real = ORMStore.purge

    def watched(store: ORMStore, **given: Any) -> Purged:
        seen.append(elsewhere(left))
        return real(store, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ORMStore, "purge", watched)
        purge("--batch-size=2")
    assert seen[:2] == [4, 2]
    assert not connection.in_atomic_block
