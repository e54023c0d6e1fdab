"""The page on how it works walks through the function as it is, line by line."""

from __future__ import annotations

from .pages import checked, code
from .walk import PAGE, walked, written


def test_the_function_is_that_of_the_package() -> None:
    """A stale one fails: python -m tests.docs.walk writes it again."""
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page
    assert walked() in page


def test_each_line_of_the_walk_is_there() -> None:
    """The lines that the table explains are lines of the function, in their order."""
    lines = [line.strip() for line in walked().splitlines()]
    explained = [code(row[0]) for row in checked("explanation/how-it-works.md", "run")]
    assert [line for line in explained if line not in lines] == []
    at = 0
    for line in explained:
        at = lines.index(line, at)
