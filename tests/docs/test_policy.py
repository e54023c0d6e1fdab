"""The page of settings has, of Policy, every field, its default and its accepted words."""

from __future__ import annotations

from ast import literal_eval

from django_idempotency import conf
from django_idempotency.core.policy import FIELDS

from .pages import DOCS, anchors, code, table

PAGE = "reference/settings.md"
ROWS = table(PAGE, "| field | default")


def test_every_field_and_its_default() -> None:
    """The fields are in the order of the code; each default is that of the setting."""
    shown = [(code(field), literal_eval(code(default))) for field, default, _ in ROWS]
    assert shown == [(name, conf.DEFAULTS[name.upper()]) for name in FIELDS]


def test_every_field_has_its_section() -> None:
    """The sections are in the order of the table."""
    sections = anchors(DOCS / PAGE)
    first = sections.index(next(iter(FIELDS)))
    assert sections[first : first + len(FIELDS)] == list(FIELDS)


def test_every_word_is_accepted() -> None:
    """The field takes every word that its column "takes" has in quotes."""
    for field, _, takes in ROWS:
        accepts = FIELDS[code(field)].accepts
        for word in takes.split("`"):
            if word.startswith('"'):
                assert accepts(literal_eval(word)), f"{field}: {word}"


def test_every_accepted_word_is_there() -> None:
    """Words that the error message suggests are on the page."""
    for field, _, takes in ROWS:
        expected = FIELDS[code(field)].expected
        if '"' in expected and "such as" not in expected:
            assert set(expected.split('"')[1::2]) == {
                word.strip('"') for word in takes.split("`") if word[:1] == '"'
            }
