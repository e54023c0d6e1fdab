"""Settings under which every compared package works as its own documentation sets it up."""

from __future__ import annotations

from benchmarks.settings import *  # noqa: F403
from benchmarks.settings import CACHES, IDEMPOTENCY, INSTALLED_APPS

ROOT_URLCONF = "benchmarks.peers.urls"
INSTALLED_APPS = [
    *INSTALLED_APPS,
    "drf_idempotency",
    "drf_idempotencykey",
    "rest_framework_idempotency_key",
]

REDIS_URL = CACHES["redis"]["LOCATION"]
#: Seconds after which each gives up on an owner that it believes dead, as short as each allows.
LOCK = 1

# drf-idempotency reads the same setting as this package, once; benchmarks.peers.libraries hands
# each its own.
OURS = IDEMPOTENCY
IDEMPOTENCY = {"BACKEND": "benchmarks.peers.backends.Either", "LOCK_TTL_SECONDS": LOCK}
IDEMPOTENCY_KEY_LOCK_TIMEOUT = LOCK
IDEMPOTENCY_KEY_EXPIRATION_MINUTES = 60
