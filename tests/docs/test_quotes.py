"""What a page quotes from the testproject is there, word for word."""

from __future__ import annotations

import re

import pytest

from .pages import ROOT, pages, text

_QUOTE = re.compile(r"^<!-- from: ([\w/.]+) -->\n\n```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
QUOTES = [
    pytest.param(found[1], found[2], id=f"{page.name}:{found.start()}")
    for page in pages()
    for found in _QUOTE.finditer(text(page))
]


@pytest.mark.parametrize(("source", "quoted"), QUOTES)
def test_a_quote(source: str, quoted: str) -> None:
    """A quote is a run of consecutive lines, with their indentation."""
    assert quoted in (ROOT / source).read_text(encoding="utf-8")


def test_every_quote_is_found() -> None:
    """The comment comes right before the code."""
    marked = sum(text(page).count("<!-- from: ") for page in pages())
    assert marked == len(QUOTES) > 5
