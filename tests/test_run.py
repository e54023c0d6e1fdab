"""Which database runs a test, by its marks."""

from __future__ import annotations

import pytest

from .run import DATABASES, selection

MARKS = ("unit", "faults", "sqlite", "any_database", "either_server")
FIRST, SERVERS, EITHER, ALL = (
    {"sqlite"},
    {"postgresql", "mariadb", "mysql"},
    {"sqlite", "postgresql"},
    {*DATABASES},
)


def in_words(names: set[str]) -> str:
    return "-".join(sorted(names)) or "unmarked"


def who_runs(marks: set[str], reached: tuple[str, ...]) -> set[str]:
    """Evaluate the selections as pytest does: as Python, each name being whether the test has that
    mark.
    """
    names = {mark: mark in marks for mark in MARKS}
    return {
        each
        for number, each in enumerate(reached)
        if eval(selection(each, reached[:number]), {}, names)
    }


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        (set(), ALL),
        ({"unit"}, FIRST),
        ({"any_database"}, FIRST),
        ({"either_server"}, EITHER),
        ({"faults"}, SERVERS),
        ({"faults", "sqlite"}, ALL),
        ({"faults", "either_server"}, {"postgresql"}),
        ({"faults", "sqlite", "either_server"}, EITHER),
        ({"unit", "faults", "either_server"}, FIRST),
    ],
    ids=in_words,
)
def test_where_a_test_runs(marks: set[str], expected: set[str]) -> None:
    """Each mark spares a test the databases on which it shows nothing new, and no other."""
    assert who_runs(marks, DATABASES) == expected


@pytest.mark.parametrize("server", ["postgresql", "mariadb", "mysql"])
@pytest.mark.parametrize(
    "marks",
    [set(), {"either_server"}, {"faults"}, {"faults", "either_server"}, {"faults", "any_database"}],
    ids=in_words,
)
def test_one_server_is_enough(marks: set[str], server: str) -> None:
    """A developer who has only one of the servers misses nothing that one of them shows."""
    assert server in who_runs(marks, ("sqlite", server))
