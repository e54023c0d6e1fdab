"""`idempotency_stores stats` and the list of `idempotency_record`: what is in a store, whichever it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_idempotency.core.conclusions import SettledState
from django_idempotency.core.records import Outcome, OutcomeKind
from django_idempotency.inspection.status import Tally
from django_idempotency.management.arguments import duration
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.contract.base import Contract
from django_idempotency.testing.tickets import make_ticket

pytestmark = pytest.mark.django_db
SECRET = "swordfish"


def call(name: str, *args: Any, **options: Any) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command(name, *args, stdout=out, stderr=err, **options)
    return out.getvalue(), err.getvalue()


@pytest.fixture
def filled(user: User) -> Iterator[MemoryStore]:
    """Records in each state: running, lapsed, completed, held, free, expired."""
    now = datetime.now(timezone.utc)
    clock = [now - timedelta(hours=2)]
    store, act = MemoryStore(clock=lambda: clock[0]), Contract()
    mine = f"user:auth.user:{user.pk}"
    store.claim(make_ticket(key="lapsed", scope=mine, path="/api/orders/", lease=30))
    act.leave(
        store,
        make_ticket(key="gone", ttl=60),
        SettledState.COMPLETED,
        Outcome(status=200, body=b""),
    )
    clock[0] = now - timedelta(seconds=10)
    store.claim(make_ticket(key="running", scope=mine, path="/api/charges/", lease=60))
    body = Outcome(status=201, body=SECRET.encode())
    act.leave(
        store,
        make_ticket(key="done", scope="scope:shop", path="/api/charges/"),
        SettledState.COMPLETED,
        body,
    )
    act.leave(store, make_ticket(key="held"), SettledState.COMPLETED, OutcomeKind.HELD.outcome())
    act.leave(store, make_ticket(key="free"), SettledState.FREE)
    clock[0] = now
    with stores.replaced("default", store):
        yield store


# -------------------------------------------------------------------------------------------- stats


def test_stats_as_json(filled: MemoryStore) -> None:
    """Each status, the oldest running record, the longest abandoned one and the purge's lag."""
    found = json.loads(call("idempotency_stores", "stats", format="json")[0])
    assert found["records"] == {
        "total": 6,
        "free": 1,
        "failed": 0,
        "abandoned": 1,
        "running": 1,
        "completed": 1,
        "expired": 1,
        "held": 1,
        "cancelled": 0,
        "unreadable": 0,
    }
    assert found["oldest_running_seconds"] == pytest.approx(7200, abs=1)
    assert found["longest_abandoned_seconds"] == pytest.approx(7170, abs=1)
    assert found["purge_lag_seconds"] == pytest.approx(7140, abs=1)
    assert found["store_size_bytes"] is None


def test_stats_as_a_table(filled: MemoryStore) -> None:
    out, _ = call("idempotency_stores", "stats")
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["free", "running", "abandoned"]
    assert "records in all                             6" in out


def test_stats_as_a_textfile(filled: MemoryStore, tmp_path: Path) -> None:
    """The text format that Prometheus reads, written at once, readable by the collector's user."""
    path = tmp_path / "idempotency.prom"
    call("idempotency_stores", "stats", format="textfile", output=path)
    text = path.read_text()
    assert (
        "# TYPE django_idempotency_records "
        'gauge\ndjango_idempotency_records{store="default",status="free"} 1\n' in text
    )
    assert 'django_idempotency_oldest_running_seconds{store="default"} 72' in text
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["idempotency.prom"]


def test_nothing_is_left_of_a_file_that_cannot_be_written(
    filled: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a cron job that fails every minute nor a full disk fills the collector's folder."""

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(CommandError, match="No space left"):
        call("idempotency_stores", "stats", output=tmp_path / "idempotency.prom")
    assert not [*tmp_path.iterdir()]


def test_a_file_that_cannot_be_written(filled: MemoryStore, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written: No such file"):
        call("idempotency_stores", "stats", output=tmp_path / "no" / "file.prom")


def test_stats_of_the_database_are_bounded_queries() -> None:
    """Rows are read in batches, in the order of the one index, without responses; the size comes
    from the server.
    """
    for number in range(5):
        Contract().complete(stores["default"], make_ticket(key=str(number)))
    with CaptureQueriesContext(connection) as queries:
        out, _ = call("idempotency_stores", "stats", format="json", batch_size=2)
    scans = [each["sql"] for each in queries if "ORDER BY" in each["sql"]]
    assert len(scans) == 3
    assert all("LIMIT 2" in sql and "response_body" not in sql for sql in scans)
    found = json.loads(out)
    assert found["records"]["completed"] == 5
    assert (found["store_size_bytes"] is None) is (connection.vendor == "sqlite")


def test_what_cannot_be_read_is_counted() -> None:
    Contract().complete(stores["default"], make_ticket())
    IdempotencyRecord.objects.update(status=9)
    found = json.loads(call("idempotency_stores", "stats", format="json")[0])["records"]
    assert (found["unreadable"], found["total"]) == (1, 1)


def test_a_store_that_cannot_list(settings: Any) -> None:
    from tests.stores.key_value.test_compare_and_swap import DictStore

    with (
        stores.replaced("default", DictStore()),
        pytest.raises(CommandError, match="cannot list its records"),
    ):
        call("idempotency_stores", "stats")


def test_an_empty_store() -> None:
    assert Tally().total == 0
    assert "records in all                             0" in call("idempotency_stores", "stats")[0]


# ------------------------------------------------------------------------------------------ records


def listed(*args: Any, **options: Any) -> list[str]:
    return [
        json.loads(line)["key"]
        for line in call("idempotency_record", *args, format="json", **options)[0].splitlines()
    ]


def test_filters(filled: MemoryStore, user: User) -> None:
    """By what the work does, how old, whose and where; all of them must hold."""
    assert sorted(listed()) == ["done", "free", "gone", "held", "lapsed", "running"]
    assert sorted(listed(running=True)) == ["lapsed", "running"]
    assert listed("--running", "--older-than", "5m") == ["lapsed"]
    assert listed(status="held") == ["held"]
    assert (
        sorted(listed(user=user.get_username()))
        == sorted(listed(user=str(user.pk)))
        == ["lapsed", "running"]
    )
    assert listed(user="nobody") == []
    filled.claim(make_ticket(key="theirs", scope=f"database:other/user:auth.user:{user.pk}"))
    filled.claim(make_ticket(key="made up", scope=f"scope:x/user:auth.user:{user.pk}"))
    assert sorted(listed(user=str(user.pk))) == ["lapsed", "running"]
    assert listed("--scope", "shop", route="charges") == ["done"]


def test_a_table_for_people(filled: MemoryStore) -> None:
    """No body is in it, nothing stored moves the cursor, and it says when it shows only a part."""
    filled.claim(make_ticket(key="evil", path="/\x1b[31m"))
    out, err = call("idempotency_record", limit=6)
    assert out.splitlines()[0].split() == ["STATUS", "AGE", "TRY", "SCOPE", "KEY", "REQUEST"]
    assert "\x1b" not in out
    assert SECRET not in out
    assert "The newest 6 of 7; --limit shows more." in err


def test_the_newest_first() -> None:
    """A store gives its records in any order; the list is ordered by their first claim, and cut at
    its old end.
    """
    order = [3, 0, 4, 1, 2]
    for number in order:
        Contract().complete(stores["default"], make_ticket(key=str(number), ttl=60 * (9 - number)))
    for row in IdempotencyRecord.objects.all():
        row.created_at -= timedelta(hours=int(row.key))
        row.save()
    assert listed() == listed("--batch-size", "2") == ["0", "1", "2", "3", "4"]
    assert listed(limit=2) == ["0", "1"]


def test_none(filled: MemoryStore) -> None:
    assert call("idempotency_record", route="nowhere")[1] == "None of 6 records.\n"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86_400)]
)
def test_spans(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "5x", "-1m", "five"])
def test_no_spans(text: str) -> None:
    with pytest.raises(Exception, match="is not a span of time, such as 90s"):
        duration(text)


@pytest.mark.parametrize("headers", ["nonsense", "[" * 20_000 + "]" * 20_000])
def test_a_record_that_cannot_be_read(user: User, headers: str) -> None:
    """Its response is damaged, at whatever depth: it is counted, and stops none of the commands
    over all records.
    """
    for key in ("damaged", "whole"):
        ticket = make_ticket(key=key, scope="scope:shop")
        Contract().leave(
            stores["default"], ticket, SettledState.COMPLETED, Outcome(status=200, body=b"")
        )
    IdempotencyRecord.objects.filter(key="damaged").update(response_headers=headers)
    assert "records in all" in call("idempotency_stores", "stats")[0]
    assert "whole" in call("idempotency_record")[0]
    assert (
        "2 of 2 records would be erased"
        in call("idempotency_erase", "--scope", "scope:shop", "--dry-run")[0]
    )
