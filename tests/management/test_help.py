"""--help, as a person reads it at night: it says what a command does, when to type it, what to type
and what its exit status means.
"""

from __future__ import annotations

import re
import shlex

import pytest
from django.core.management import execute_from_command_line
from django.core.management.base import BaseCommand

from ..support.commands import OURS, helped, loaded, typed

pytestmark = pytest.mark.any_database
EVERY = [words for name in sorted(OURS) for words in typed(name)]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_how_many() -> None:
    """At most eight commands, and their names begin alike."""
    assert len(OURS) <= 8
    assert {name for name in OURS if not name.startswith("idempotency_")} == {"purge_idempotency"}


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_what_is_printed(words: list[str]) -> None:
    """The four parts, in lines that fit."""
    said = helped(words)
    for part in ("when:", "examples:", "exit status:"):
        assert f"\n{part}\n  " in said
    assert re.search(r"^  0    All was done\.$", said, re.MULTILINE)
    usage = said.partition("\n\n")[0]
    assert max(map(len, said.removeprefix(usage).splitlines())) <= 100


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_each_example_can_be_typed(words: list[str]) -> None:
    """The parser takes it, and each sentence ends."""
    examples = helped(words).partition("\nexamples:\n")[2].partition("\n\n")[0]
    lines = re.findall(rf"^  manage\.py ({' '.join(words)}.*)$", examples, re.MULTILINE)
    assert lines
    parser = loaded(words[0]).create_parser("manage.py", words[0])
    for line in lines:
        parser.parse_args(shlex.split(line)[1:])
    assert all(
        re.search(r"\.$", text)
        for text in re.split(r"^  manage\.py .*$", examples, flags=re.MULTILINE)[1:]
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("line", "checks"),
    [("idempotency_resume operations --dry-run", 1), ("idempotency_stores stats -v 0", 0)],
)
def test_from_the_command_line(
    line: str, checks: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subcommand runs, with the checks that it asks for."""
    checked: list[BaseCommand] = []
    # The checks would look at each function that a test has guarded.
    monkeypatch.setattr(BaseCommand, "check", lambda self, **_: checked.append(self))
    execute_from_command_line(["manage.py", *line.split()])
    assert capsys.readouterr().out
    assert len(checked) == checks
