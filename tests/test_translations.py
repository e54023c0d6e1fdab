"""Each translation is complete, current, and has the placeholders of the original.

After a change of texts: `makemessages -l de --no-location --no-wrap` in django_idempotency/,
translate, `compilemessages`.
"""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from django.utils import translation

from django_idempotency.core.states import RecordState
from django_idempotency.inspection.status import DISPLAYS

ROOT = Path(__file__).resolve().parent.parent / "django_idempotency"
LANGUAGES = sorted(path.name for path in (ROOT / "locale").iterdir())
MARKERS = {"_", "gettext", "gettext_lazy", "ngettext", "ngettext_lazy"}
_IN_TEMPLATES = re.compile(r'{%\s*translate\s+"([^"]*)"')
_ENTRY = re.compile(r'^msgid "(.*)"\n(?:msgid_plural "(.*)"\n)?((?:msgstr.*\n?)+)', re.MULTILINE)
_PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[sd]")


def used() -> Iterator[str]:
    """Yield every text that the code or a template marks for translation."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id=marker), args=[ast.Constant(value=str(text)), *_]
                ) if marker in MARKERS:
                    yield text
    for path in ROOT.rglob("*.html"):
        yield from _IN_TEMPLATES.findall(path.read_text(encoding="utf-8"))


@cache
def entries(language: str) -> dict[str, list[str]]:
    """Return what a .po file says for each text: one line, or one for each plural form."""
    text = (ROOT / "locale" / language / "LC_MESSAGES" / "django.po").read_text(encoding="utf-8")
    found = {}
    for one, _, lines in _ENTRY.findall(text.partition("\n\n")[2]):
        found[unquoted(one)] = [
            unquoted(said)
            for said in re.findall(r'^msgstr(?:\[\d\])? "(.*)"$', lines, re.MULTILINE)
        ]
    return found


def unquoted(text: str) -> str:
    return text.replace('\\"', '"').replace("\\n", "\n")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated(language: str) -> None:
    texts = set(used())
    assert len(texts) > 100
    assert not texts - set(entries(language))
    assert not [text for text, said in entries(language).items() if not all(said)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_placeholders_are_those_of_the_original(language: str) -> None:
    for text, said in entries(language).items():
        for each in said:
            assert sorted(_PLACEHOLDER.findall(each)) == sorted(_PLACEHOLDER.findall(text)), text


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_file_is_current(language: str) -> None:
    with (ROOT / "locale" / language / "LC_MESSAGES" / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for text, said in entries(language).items():
        assert (
            [compiled.gettext(text)] == said
            if len(said) == 1
            else compiled.ngettext(text, text, 1) == said[0]
        ), text


def test_django_finds_it() -> None:
    with translation.override("de"):
        assert str(DISPLAYS[RecordState.ABANDONED].label) == "aufgegeben"
