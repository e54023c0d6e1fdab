"""One word for each state of a record; *abandoned* is the one for a dead owner, wherever a state is
shown, listed or counted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import django_idempotency
from django_idempotency.contrib.publishing import by_key
from django_idempotency.core.states import RecordState
from django_idempotency.inspection.status import DISPLAYS, STATUSES

ROOT = Path(django_idempotency.__file__).parent
DOCS = ROOT.parent / "docs"
#: Other words for an owner that is gone, or for its record.
OTHERS = re.compile(
    r"\blapsed\b|\bcrashed\b|\bdead owner|\b(has|have|had) died\b|\borphan", re.IGNORECASE
)
#: What people and tools read of a record's state.
SHOWING = [
    *(ROOT / "admin").rglob("*.py"),
    *(ROOT / "inspection").rglob("*.py"),
    *(ROOT / "management").rglob("*.py"),
    *(ROOT / "templates").rglob("*.html"),
    ROOT / "signals.py",
    ROOT / "contrib/publishing/by_key.py",
    ROOT / "core/states.py",
    ROOT / "functions/handle.py",
    DOCS / "monitoring/rules.yml",
    DOCS / "monitoring/dashboard.json",
]
#: The pages whose tables list states, events or problems.
PAGES = (
    *(
        "reference/admin.md",
        "reference/http.md",
        "reference/problems.md",
        "reference/signals-and-logs.md",
    ),
    *("how-to/keys.md", "how-to/functions.md", "how-to/metrics.md", "how-to/unknown-outcome.md"),
)


def texts(file: Path) -> Iterator[str]:
    """Yield what a file says: the strings of a module, the lines of anything else."""
    source = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        yield from source.splitlines()
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("file", SHOWING, ids=lambda file: str(file.relative_to(ROOT.parent)))
def test_no_other_word_in_code(file: Path) -> None:
    """Admin, commands, figures, signals and what programs ask."""
    assert [text for text in texts(file) if OTHERS.search(text)] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_other_word_in_a_table(page: str) -> None:
    """The tables of the pages."""
    rows = [
        line
        for line in (DOCS / page).read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    assert [row for row in rows if OTHERS.search(row)] == []


def test_all_use_the_same_words() -> None:
    """The commands' choices and the admin's labels are the states; the endpoint of keys takes its
    words from them.
    """
    assert (
        list(STATUSES)
        == [state.value for state in RecordState]
        == [shown.value for shown in DISPLAYS.values()]
    )
    assert [str(shown.label) for shown in DISPLAYS.values()] == list(STATUSES)
    assert vars(by_key)["RecordState"] is RecordState
