"""WCAG 2.2 AA, as far as a test can tell without a browser: contrast, headings in order, names for
what is focused.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import django.contrib.admin
import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from tests.admin.helpers import LIST, completed, page_of, released, running, text_of

CSS = Path(str(finders.find("django_idempotency/admin.css")))
DJANGO = Path(django.contrib.admin.__file__).parent / "static" / "admin" / "css"


def variables(name: str, theme: str) -> dict[str, str]:
    """Return the colours that Django's admin defines for a theme."""
    text = (DJANGO / name).read_text(encoding="utf-8")
    block = re.search(rf'html\[data-theme="{theme}"\][^{{]*{{(.*?)}}', text, re.DOTALL)
    assert block is not None
    return dict(re.findall(r"(--[\w-]+):\s*([^;]+);", block[1]))


LIGHT = variables("base.css", "light")
#: theme → its variables; in an admin without Django's, the colours that our own rules fall back on.
THEMES = {
    "light": LIGHT,
    "dark": LIGHT | variables("dark_mode.css", "dark"),
    "without variables": {},
}
LABELS = ("free", "completed", "running", "abandoned", "failed", "expired")


def rules(selector: str) -> dict[str, str]:
    text = CSS.read_text(encoding="utf-8")
    found = re.search(rf"(?m)^{re.escape(selector)} {{(.*?)}}", text, re.DOTALL)
    return dict(re.findall(r"([\w-]+):\s*([^;]+);", found[1])) if found else {}


def colour(value: str, theme: dict[str, str]) -> str:
    """Return a colour as six hexadecimal digits."""
    while used := re.fullmatch(r"var\((--[\w-]+)(?:,\s*(#\w+))?\)", value.strip()):
        value = theme.get(used[1]) or used[2]
    digits = value.strip().removeprefix("#")
    return "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits


def contrast(first: str, second: str) -> float:
    """Return the ratio of WCAG 2.2, section 1.4.3."""
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(digits: str) -> float:
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_formula() -> None:
    """Black on white is 21; the specification's example of a grey that just passes."""
    assert contrast("000000", "ffffff") == pytest.approx(21)
    assert contrast("767676", "ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("label", LABELS)
def test_labels_can_be_read(label: str, theme: str) -> None:
    style = rules(".idempotency-label") | rules(f".idempotency-label.{label}")
    shown = [colour(style[name], THEMES[theme]) for name in ("color", "background")]
    assert contrast(*shown) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["", ".of-2", ".of-4", ".of-5"])
def test_lines_and_marks_can_be_seen(kind: str, theme: str) -> None:
    """Section 1.4.11 asks 3 of graphics: on the page, and on every other row, which is darker."""
    drawn = colour(
        (rules(".idempotency-spark") | rules(f".idempotency-spark{kind}"))["color"], THEMES[theme]
    )
    for ground in ("--body-bg", "--darkened-bg"):
        assert contrast(drawn, colour(THEMES[theme][ground], THEMES[theme])) >= 3


class Outline(HTMLParser):
    """Collects headings, fields, labels and what can be focused."""

    def __init__(self) -> None:
        super().__init__()
        self.levels: list[int] = []
        self.fields: list[dict[str, str | None]] = []
        self.labelled: set[str] = set()
        self.regions: list[dict[str, str | None]] = []
        self.ids: list[str] = []
        self.inside = 0  # a label

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [str(given["id"])] if given.get("id") else []
        self.inside += tag == "label"
        if re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag in {"input", "select", "textarea"} and given.get("type") not in {
            "hidden",
            "submit",
            "button",
        }:
            self.fields.append({**given, "aria-label": "its label"} if self.inside else given)
        if tag == "label" and given.get("for"):
            self.labelled.add(str(given["for"]))
        if given.get("tabindex") == "0":
            self.regions.append(given)

    def handle_endtag(self, tag: str) -> None:
        self.inside -= tag == "label"


PAGES = ["list", "record", "release", "suspects"]


@pytest.mark.django_db
@pytest.mark.parametrize("page", PAGES)
def test_outline(boss: Client, page: str) -> None:
    """Headings skip no level, each field has a label, each scrolling region a name, and no id is
    used twice.
    """
    ticket, _, _ = completed(), released(), running()
    urls = {"list": LIST, "record": page_of(ticket), "release": page_of(ticket, "release")}
    text = text_of(boss.get(urls.get(page, f"{LIST}{page}/")))
    outline = Outline()
    outline.feed(text.partition('<main id="content-start"')[2].partition("</main>")[0])
    assert outline.levels[:1] == [1]
    assert all(
        after <= before + 1
        for before, after in zip(outline.levels, outline.levels[1:], strict=False)
    )
    for each in outline.fields:
        assert each.get("id") in outline.labelled or each.get("aria-label"), each
    for each in outline.regions:
        assert each.get("role") == "region"
        assert each.get("aria-label") or each.get("aria-labelledby")
    assert len(outline.ids) == len(set(outline.ids))


def test_no_column_of_the_list_is_cut_off() -> None:
    """Each cell may be broken into lines: one that may not would cut the last column off on a
    screen of 1280 pixels.
    """
    rules = re.findall(r"([^{}]*#result_list[^{}]*)\{([^}]*)\}", CSS.read_text(encoding="utf-8"))
    assert rules
    assert [cells for cells, declared in rules if "nowrap" in declared] == []
