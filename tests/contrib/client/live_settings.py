"""The testproject with a provider, for processes that are started by tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from testproject.settings import *  # noqa: F403 - these settings, and one more

PROVIDERS: dict[str, Any] = {
    "fake": {
        "LIFETIME": timedelta(hours=24),
        "CLIENT": "tests.contrib.client.live_client.new_client",
    }
}
IDEMPOTENCY = {"PROVIDERS": PROVIDERS}
