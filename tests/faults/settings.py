"""The testproject with a store that breaks on demand. For server processes; the environment chooses the rest."""

from __future__ import annotations

import os

from testproject.settings import *  # noqa: F403
from testproject.settings import MIDDLEWARE

ROOT_URLCONF = "tests.faults.urls"

#: Long enough to look at while it holds, short enough to wait for its end.
LEASE = 3

IDEMPOTENCY = {
    "STORES": {"default": {"BACKEND": "tests.faults.store.FaultStore"}},
    "SCOPE": "tests.faults.views.customer",
    "GUARANTEE": os.environ.get("GUARANTEE", "atomic"),
    "LEASE": LEASE,
}

if os.environ.get("WITHOUT_MIDDLEWARE") == "1":
    MIDDLEWARE = [name for name in MIDDLEWARE if not name.startswith("django_idempotency.")]
