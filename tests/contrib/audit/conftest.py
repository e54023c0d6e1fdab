"""The trail is on in these tests."""

from __future__ import annotations

import pytest
from pytest_django import Settings


@pytest.fixture(autouse=True)
def audit(settings: Settings) -> None:
    settings.IDEMPOTENCY = {"AUDIT": True}
