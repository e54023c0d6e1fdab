"""The pictures match their sources, and are shown."""

from __future__ import annotations

from xml.etree import ElementTree

from .drawing import PICTURES, sources, stale
from .pages import DOCS, ROOT, pages


def test_no_picture_is_older_than_its_source() -> None:
    """No picture is older than its source, the table of the rings or their colours."""
    assert list(stale()) == [], "Draw them again: make pictures"


def test_each_picture_can_be_seen_in_light_and_dark() -> None:
    """Each picture is well-formed, and has only those colours of Graphviz's that the style
    overrides.
    """
    for name in sources():
        svg = ElementTree.fromstring((PICTURES / f"{name}.svg").read_text(encoding="utf-8"))
        assert svg.attrib["class"] == "picture"
        kinds = {
            group.attrib["class"].partition(" ")[0]
            for group in svg.iter("{http://www.w3.org/2000/svg}g")
        }
        assert kinds <= {"graph", "node", "edge", "cluster"}


def test_each_picture_is_on_a_page() -> None:
    """Each picture is on a page, with a text alternative."""
    shown = "\n".join(
        page.read_text(encoding="utf-8") for page in [*pages(), ROOT / "CONTRIBUTING.md"]
    )
    unseen = [
        path.relative_to(DOCS).as_posix()
        for path in sorted(PICTURES.glob("*.[sp][vn]g"))
        if f"pictures/{path.name})" not in shown
    ]
    assert unseen == []
    assert "![](" not in shown
