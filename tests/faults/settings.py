"""The testproject with a store that breaks on demand.

For server processes; the environment chooses the rest.
"""

from __future__ import annotations

import json
import os

from testproject.settings import *  # noqa: F403
from testproject.settings import MIDDLEWARE

from .plans import ENDLESS, LEASE

ROOT_URLCONF = "tests.faults.urls"

GUARANTEE = os.environ.get("GUARANTEE", "atomic")

IDEMPOTENCY = {
    "STORES": {
        "default": {
            "BACKEND": f"tests.faults.store.{os.environ.get('STORE', 'FaultStore')}",
            "OPTIONS": json.loads(os.environ.get("STORE_OPTIONS", "{}")),
        }
    },
    "SCOPE": "tests.faults.views.customer",
    "GUARANTEE": GUARANTEE,
    "CLAIM_LEASE": float(os.environ.get("CLAIM_LEASE", "1")),
    # `atomic` must not wait for it. Views that choose `lease` set their own.
    "LEASE": LEASE if GUARANTEE == "lease" else ENDLESS,
}

if os.environ.get("AUDIT") == "1":
    IDEMPOTENCY["AUDIT"] = True

if "METRICS" in os.environ:
    IDEMPOTENCY["METRICS"] = os.environ["METRICS"]

if "REDIS_URL" in os.environ:
    CACHES = {
        "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["REDIS_URL"]}
    }

if os.environ.get("WITHOUT_MIDDLEWARE") == "1":
    MIDDLEWARE = [name for name in MIDDLEWARE if not name.startswith("django_idempotency.")]
