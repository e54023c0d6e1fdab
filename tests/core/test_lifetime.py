"""How long a key may be used elsewhere."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pytest_django import Settings

from django_idempotency import conf
from django_idempotency.core.lifetime import MARGIN, remembered

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@pytest.mark.parametrize(
    ("age", "lifetime", "margin", "known"),
    [
        (timedelta(0), DAY, MARGIN, True),
        (DAY - MARGIN, DAY, MARGIN, True),
        (DAY - MARGIN + timedelta(seconds=1), DAY, MARGIN, False),  # it could arrive too late
        (DAY - timedelta(seconds=45), DAY, timedelta(seconds=30), True),
        (2 * HOUR, HOUR, MARGIN, False),
        (-2 * HOUR, HOUR, MARGIN, True),  # a clock was set back: the key is as new as it looks
    ],
)
def test_remembered(age: timedelta, lifetime: timedelta, margin: timedelta, known: bool) -> None:
    """Not to the last moment: what is sent takes a while to arrive."""
    assert remembered(age, lifetime=lifetime, margin=margin) is known


@pytest.mark.parametrize(
    ("label", "lifetime"),
    [
        ("charge", 2 * HOUR),
        ("stripe", 30 * DAY),
        ("stripe:charge", 30 * DAY),
        ("my-stripe", 2 * HOUR),
        ("", 2 * HOUR),
    ],
)
def test_lifetime(settings: Settings, label: str, lifetime: timedelta) -> None:
    """A label that names a provider has what that remembers, any other what the setting says."""
    settings.IDEMPOTENCY = {"LIFETIME": 7200, "PROVIDERS": {"stripe": {"LIFETIME": 30 * DAY}}}
    assert conf.lifetime(label) == lifetime
