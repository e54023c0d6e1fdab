"""`idempotency_suspects`: the same facts, close together, under different keys."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from django_idempotency.contrib.suspects.searching import Search, Suspect
from django_idempotency.signals import duplicate_found
from testproject.payments.models import Charge, Effect

from ...support.meters import RecordingMeter, installed

pytestmark = pytest.mark.django_db
#: Some hours ago, so that the default window has it.
START = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(hours=3)


def call(model: str = "payments.Effect", same: str = "label", *args: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    chosen = ["--within=5m"] if not any(each.startswith("--within") for each in args) else []
    call_command(
        "idempotency_suspects", model, f"--same={same}", *chosen, *args, stdout=out, stderr=err
    )
    return out.getvalue(), err.getvalue()


def effect(label: str, after: float, key: str = "") -> Effect:
    """Make a row, so many minutes after the start."""
    made = Effect.objects.create(label=label, idempotency_key=key)
    Effect.objects.filter(pk=made.pk).update(created=START + timedelta(minutes=after))
    return made


def groups(*args: str, model: str = "payments.Effect", same: str = "label") -> list[list[int]]:
    """Return the primary keys of each suspect."""
    found = [json.loads(line) for line in call(model, same, "--format=json", *args)[0].splitlines()]
    return [[row["pk"] for row in each["rows"]] for each in found]


@pytest.fixture
def sent() -> Iterator[list[Suspect]]:
    """What the signal has sent."""
    found: list[Suspect] = []

    def note(suspect: Suspect, **_: Any) -> None:
        found.append(suspect)

    duplicate_found.connect(note)
    yield found
    duplicate_found.disconnect(note)


# -------------------------------------------------------------------------------- what is a suspect


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("a", 0, "k1"), ("a", 5, "k2")], [[0, 1]]),  # exactly as far apart as allowed
        ([("a", 0, "k1"), ("a", 5.01, "k2")], []),
        ([("a", 0, "k1"), ("b", 1, "k2")], []),  # other facts
        ([("a", 0, "k1"), ("a", 1, "k1")], []),  # one key: one operation that made two rows
        ([("a", 0, ""), ("a", 1, "")], [[0, 1]]),  # no keys are not one key
        ([("a", 0, "k1"), ("a", 1, "")], [[0, 1]]),
        ([("a", 0, "k1"), ("a", 0, "k2")], [[0, 1]]),  # the same instant
        # Each near the one before.
        (
            [("a", 0, "k1"), ("a", 4, "k2"), ("a", 8, "k3"), ("a", 14, "k4")],
            [[0, 1, 2]],
        ),
        ([("a", 0, "k1"), ("b", 0, "k2"), ("a", 2, "k3"), ("b", 2, "k4")], [[0, 2], [1, 3]]),
        # The neighbours of different keys.
        (
            [("a", 0, "k1"), ("a", 1, "k1"), ("a", 2, "k2")],
            [[1, 2]],
        ),
        (
            [("a", 0, "k1"), ("a", 4, "k1"), ("a", 8, "k2"), ("a", 9, "k2"), ("a", 12, "k1")],
            [[1, 2], [3, 4]],
        ),
    ],
)
def test_what_is_a_suspect(rows: list[tuple[str, float, str]], expected: list[list[int]]) -> None:
    """Equal facts, near the row before, and another key."""
    made = [effect(*row).pk for row in rows]
    assert groups() == [[made[n] for n in group] for group in expected]


def test_the_database_decides_what_is_equal() -> None:
    """Where its collation ignores case, so does the search, and rows that alternate are one
    group.
    """
    a, b, c = (
        effect(label, number, f"k{number}").pk for number, label in enumerate(("a", "A", "a"))
    )
    assert groups("--within=1m") == ([[a, b, c]] if connection.vendor == "mysql" else [])
    assert groups("--within=2m") == ([[a, b, c]] if connection.vendor == "mysql" else [[a, c]])


def test_paths_and_several_facts(user: User, other_user: User) -> None:
    """Facts may be of another table; a model without keys has none to compare; NULL equals
    nothing.
    """
    made = [
        Charge.objects.create(user=each, amount=5, currency="EUR").pk
        for each in (user, other_user, user)
    ]
    assert groups(model="payments.Charge", same="user,amount") == [[made[0], made[2]]]
    assert groups(model="payments.Charge", same="user__username,amount") == [[made[0], made[2]]]
    assert groups(model="payments.Charge", same="amount") == [made]
    assert User.objects.filter(last_login=None).count() == 2
    assert groups("--timestamp=date_joined", model="auth.User", same="last_login") == []


def test_another_key() -> None:
    """Another field than `idempotency_key` can have the key: also one that is not text."""
    made = [effect("a", 0, "k1").pk, effect("a", 1, "k2").pk]
    assert groups("--key=attempt") == []
    Effect.objects.filter(pk=made[1]).update(attempt=1)
    assert groups("--key=attempt") == [made]


def test_where() -> None:
    """Only rows that match every lookup are compared."""
    made = [effect("a", 0, "k1").pk, effect("a", 1, "k2").pk, effect("a", 2, "k3").pk]
    Effect.objects.filter(pk=made[1]).update(attempt=7)
    assert groups("--where=attempt=0") == [[made[0], made[2]]]
    assert groups("--where=attempt__gte=0", "--where=label=b") == []
    assert groups("--where=label=b", "--where=label=a") == []
    assert groups("--where=idempotency_key__in=k1,k2") == [made[:2]]
    assert groups("--where=created__isnull=false") == [made]
    assert groups("--where=created__isnull=true") == []


# --------------------------------------------------------------------------------------- the window


def test_a_pair_over_the_edge_belongs_to_the_later_run() -> None:
    """Runs whose windows meet report each pair once: the later one, which has seen both rows."""
    made = [effect("a", 0, "k1").pk, effect("a", 4, "k2").pk]
    edge = START + timedelta(minutes=2)
    assert groups(f"--until={edge.isoformat()}") == []
    assert groups(f"--since={edge.isoformat()}") == [made]
    assert groups(f"--since={(edge + timedelta(minutes=3)).isoformat()}") == []


def test_until_is_exclusive() -> None:
    effect("a", 0, "k1"), effect("a", 4, "k2")
    assert groups(f"--until={(START + timedelta(minutes=4)).isoformat()}") == []


def test_days_are_those_of_the_project(settings: Any) -> None:
    """Yesterday and a date begin at midnight in the current time zone."""
    settings.TIME_ZONE = "Pacific/Kiritimati"  # UTC+14
    midnight = datetime(2026, 3, 1, 10, tzinfo=timezone.utc)  # of 2 March
    made = [effect("a", 0, key).pk for key in ("k1", "k2", "k3")]
    for pk, minutes in zip(made, (-2, 1, 1), strict=True):
        Effect.objects.filter(pk=pk).update(created=midnight + timedelta(minutes=minutes))
    assert groups("--within=1m", "--since=2026-03-02", "--until=2026-03-03") == [made[1:]]
    assert groups("--within=1m", "--since=2026-03-01", "--until=2026-03-02") == []
    assert groups("--since=yesterday", "--until=today") == []


# ------------------------------------------------------------------------------------- what it does


def test_one_statement_that_reads() -> None:
    """One SELECT does it, beside those that look for an index; only rows that are near another
    leave the database.
    """
    for number in range(4):
        effect("a" if number < 2 else str(number), number, f"k{number}")
    with CaptureQueriesContext(connection) as queries:
        assert len(groups()) == 1
    about_rows = [
        each["sql"]
        for each in queries
        if "payments_effect" in each["sql"] and "LAG(" in each["sql"].upper()
    ]
    assert len(about_rows) == 1
    assert all(
        each["sql"].lstrip("( \n").upper().startswith(("SELECT", "PRAGMA", "SHOW"))
        for each in queries
    )
    assert Effect.objects.count() == 4


def test_the_table_and_the_sum() -> None:
    effect("a\x1b[2J", 0, "k1"), effect("a\x1b[2J", 1, "k2")
    out, err = call()
    head, line = out.splitlines()
    assert head.split() == ["FIRST", "AT", "ROWS", "SPAN", "PRIMARY", "KEYS", "FACTS"]
    assert line.startswith(f"{START:%Y-%m-%d %H:%M:%S} UTC      2 1 min")
    assert line.endswith(r"label=a\x1b[2J")
    assert err.endswith("1 suspect, 2 rows of payments.Effect.\n")


def test_nothing_found() -> None:
    out, err = call()
    assert out == ""
    assert err.endswith("0 suspects, 0 rows of payments.Effect.\n")
    assert call("payments.Effect", "label", "--verbosity=0") == ("", "")


def test_csv_that_no_spreadsheet_runs() -> None:
    """A line a row, with the number of its group; what looks like a formula is text."""
    made = [effect("=1+1", 0, "@key"), effect("=1+1", 1, "k,2")]
    read = list(csv.reader(StringIO(call("payments.Effect", "label", "--format=csv")[0])))
    assert read[0] == ["group", "model", "pk", "at", "key", "label"]
    assert [row[:3] for row in read[1:]] == [
        ["1", "payments.Effect", str(each.pk)] for each in made
    ]
    assert [row[4:] for row in read[1:]] == [["'@key", "'=1+1"], ["k,2", "'=1+1"]]


def test_files(tmp_path: Path) -> None:
    """The report is its owner's; the figures are the collector's.

    Nothing is printed beside them.
    """
    effect("a", 0, "k1"), effect("a", 1, "k2")
    report, figures = tmp_path / "report.json", tmp_path / "suspects.prom"
    out, _ = call(
        "payments.Effect", "label", "--format=json", f"--output={report}", f"--textfile={figures}"
    )
    assert out == ""
    assert json.loads(report.read_text())["facts"] == {"label": "a"}
    assert [path.stat().st_mode & 0o777 for path in (report, figures)] == [0o600, 0o644]
    assert (
        'django_idempotency_suspects{model="payments.Effect",same="label"} 1\n'
        in figures.read_text()
    )
    assert (
        'django_idempotency_suspect_rows{model="payments.Effect",same="label"} 2\n'
        in figures.read_text()
    )


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="/dev/null is not a file"):
        call("payments.Effect", "label", "--output=/dev/null")


def test_a_signal_and_a_figure_for_each(sent: list[Suspect]) -> None:
    """A receiver gets the facts and the rows; the figure and the log do not."""
    for label in "ab":
        effect(label, 0, "k1"), effect(label, 1, "k2")
    meter = RecordingMeter()
    with installed(meter):
        out, _ = call("payments.Effect", "label", "--format=none")
    assert out == ""
    assert [(each.model, each.facts) for each in sent] == [
        ("payments.Effect", {"label": label}) for label in "ab"
    ]
    assert [row.key for row in sent[0].rows] == ["k1", "k2"]
    assert sent[0].span == timedelta(minutes=1)
    assert meter.labels("duplicates.found") == [("payments.Effect",)] * 2


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Facts may be personal: they are printed, and not logged."""
    effect("swordfish", 0, "k1"), effect("swordfish", 1, "k2")
    with caplog.at_level("INFO"):
        call()
    assert "swordfish" not in caplog.text


def test_a_receiver_that_raises(sent: list[Suspect]) -> None:
    """The other receivers and suspects have their turn."""

    def broken(**_: Any) -> None:
        raise LookupError

    effect("a", 0, "k1"), effect("a", 1, "k2")
    duplicate_found.connect(broken)
    try:
        call()
    finally:
        duplicate_found.disconnect(broken)
    assert len(sent) == 1


def test_the_exit_code() -> None:
    """3, so that neither an error nor a wrong option looks like a suspect; and only if it is asked
    for.
    """
    call("payments.Effect", "label", "--exit-code")
    effect("a", 0, "k1"), effect("a", 1, "k2")
    call()
    with pytest.raises(CommandError, match="1 suspect, 2 rows") as caught:
        call("payments.Effect", "label", "--exit-code")
    assert caught.value.returncode == 3


def test_the_limit() -> None:
    """It bounds what is read, and says that there is more."""
    for number in range(6):
        effect("a", number, f"k{number}")
    out, err = call("payments.Effect", "label", "--limit=4", "--format=json", "--verbosity=0")
    assert len(json.loads(out)["rows"]) == 4
    assert "There are more: stopped after 4 rows" in err
    assert "more" not in call("payments.Effect", "label", "--limit=6")[1]


def test_a_time_without_an_index() -> None:
    """It is said, with what to type; a field with an index needs nothing said."""
    assert "payments.Effect.created has no index that begins with it" in call()[1]
    assert 'Add models.Index(fields=["created"]).' in call()[1]
    out = call("django_idempotency.IdempotencyRecord", "path", "--timestamp=purge_at")[1]
    assert "index" not in out


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("model", "same", "args", "message"),
    [
        (
            "payments.Carge",
            "label",
            [],
            "There is no model 'payments.Carge'. payments has payments.Charge, payments.R",
        ),
        ("charge", "label", [], "There is no model 'charge'. Type it as in payments.Charge."),
        (
            "payments.Charge",
            "card",
            [],
            "payments.Charge has no field 'card'. It has id, user, amount, currency",
        ),
        (
            "payments.Charge",
            "user__card",
            [],
            "'user__card' goes past a column: 'card' is no field.",
        ),
        (
            "payments.Charge",
            "created__date",
            [],
            "'created__date' goes past a column: 'date' is no field.",
        ),
        (
            "payments.Charge",
            "refunds",
            [],
            "'refunds' of payments.Charge has many values for a row",
        ),
        (
            "payments.Charge",
            "user,user_id",
            [],
            "'user_id' and 'user' are one column. Leave one out.",
        ),
        (
            "payments.Charge",
            "user,user__id",
            [],
            "'user__id' and 'user' are one column. Leave one out.",
        ),
        ("payments.Charge", "pk", [], "'id' and 'pk' are one column. Leave one out."),
        (
            "auth.User",
            "groups",
            ["--timestamp=date_joined"],
            "'groups' of auth.User has many values for a row",
        ),
        ("payments.Charge", "amount,", [], "is not a list of fields, such as card,amount"),
        ("auth.User", "email", [], r"Type --timestamp FIELD. It has last_login, date_joined."),
        ("auth.Group", "name", [], "Type --timestamp FIELD. It has no DateTimeField."),
        (
            "payments.Charge",
            "amount",
            ["--timestamp=amount"],
            "'amount' is not a DateTimeField of payments.Charge.",
        ),
        (
            "payments.Charge",
            "amount",
            ["--timestamp=user__date_joined"],
            "'user__date_joined' is not a DateTimeField",
        ),
        ("payments.Charge", "amount", ["--key=nokey"], "payments.Charge has no field 'nokey'"),
        (
            "payments.Charge",
            "amount",
            ["--where=amount"],
            "'amount' is not a lookup, such as status=paid.",
        ),
        (
            "payments.Charge",
            "amount",
            ["--where=status=paid"],
            "payments.Charge has no field 'status'",
        ),
        (
            "payments.Charge",
            "amount",
            ["--where=refunds__amount=1"],
            "'refunds' of payments.Charge has many values",
        ),
        (
            "payments.Charge",
            "amount",
            ["--where=amount__more=1"],
            "--where cannot be asked: Unsupported lookup",
        ),
        (
            "payments.Charge",
            "amount",
            ["--where=amount=much"],
            "--where cannot be asked: Field 'amount' expected",
        ),
        (
            "payments.Charge",
            "amount",
            ["--where=created=much"],
            "--where cannot be asked: “much” value has an invalid",
        ),
        (
            "payments.Charge",
            "amount",
            ["--where=created__isnull=no"],
            "--where cannot be asked: created__isnull is true or false, and not",
        ),
        ("payments.Charge", "amount", ["--since=0001-01-01"], "--since is too early: 0001-01-01"),
        (
            "payments.Charge",
            "amount",
            ["--since=soon"],
            "'soon' is not a moment: a span such as 24h, today, yesterday",
        ),
        ("payments.Charge", "amount", ["--since=2026-02-31"], "'2026-02-31' is not a moment"),
        ("payments.Charge", "amount", ["--until=2d"], "--since 24h is not before --until 2d."),
        ("payments.Charge", "amount", ["--within=soon"], "'soon' is not a span of time"),
        (
            "payments.Charge",
            "amount",
            ["--database=other"],
            "DATABASES has no 'other'. It has default.",
        ),
    ],
)
def test_errors_say_what_to_type(model: str, same: str, args: list[str], message: str) -> None:
    with pytest.raises(CommandError) as caught:
        call(model, same, *args)
    assert message in str(caught.value)


def test_a_database_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is one line."""

    def gone(search: Search, limit: int) -> None:
        raise OperationalError("server closed\nthe connection")

    monkeypatch.setattr(Search, "rows", gone)
    with pytest.raises(
        CommandError, match="The database could not answer: server closed the connection"
    ):
        call()
