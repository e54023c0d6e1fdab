"""The page of keys says for whom each profile is, and what its words mean."""

from __future__ import annotations

from django_idempotency.contrib.dialects import PROFILES, REPEATABILITY

from .pages import code, table, text


def test_the_guide_names_every_profile() -> None:
    """The guide says for whom each profile is."""
    assert [code(row[1]) for row in table("how-to/keys.md", "| your clients |")] == list(PROFILES)


def test_the_window() -> None:
    """The state table has the window of the code."""
    hours, minutes = REPEATABILITY.window / 3600, REPEATABILITY.ahead / 60
    assert f"more than {hours:g} hours ago, or more than {minutes:g} minutes ahead" in text("how-to/keys.md")
