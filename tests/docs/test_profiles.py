"""The page of profiles has the tables that the code has."""

from __future__ import annotations

from django_idempotency.core.profiles import ERRORS, PROFILES, REPEATABILITY

from .pages import code, table, text
from .profile_tables import PAGE, written


def test_the_tables_are_those_of_the_code() -> None:
    """A stale table fails: python -m tests.docs.profile_tables writes it again."""
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page


def test_the_guide_names_every_profile() -> None:
    """The guide says for whom each profile is."""
    assert [code(row[1]) for row in table("how-to/dialects.md", "| your clients |")] == list(PROFILES)


def test_the_window() -> None:
    """The state table has the window of the code."""
    hours, minutes = REPEATABILITY.window / 3600, REPEATABILITY.ahead / 60
    assert f"more than {hours:g} hours ago, or more than {minutes:g} minutes ahead" in text("reference/profiles.md")


def test_the_shapes() -> None:
    """Every shape of an error is named."""
    assert all(f"`{name}`" in text("reference/profiles.md") for name in ERRORS if name != "problem")
