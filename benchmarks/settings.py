"""The testproject's settings, reduced to what is measured: no middleware, no log output, a separate database."""

from __future__ import annotations

import logging
import os

from testproject.settings import *  # noqa: F403
from testproject.settings import BASE_DIR, DATABASE, DATABASES, TEST_NAME

ROOT_URLCONF = "benchmarks.urls"
MIDDLEWARE = []  # each handler gets its own

CACHES = {
    "redis": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/9"),
    }
}

BENCH_NAME = TEST_NAME.replace("test_idempotency", "test_idempotency_bench", 1)
DATABASES["default"] |= {"CONN_MAX_AGE": None, "ATOMIC_REQUESTS": False}  # connecting is not measured
DATABASES["default"]["TEST"]["NAME"] = BASE_DIR / f"{BENCH_NAME}.sqlite3" if DATABASE == "sqlite" else BENCH_NAME

LOGGING_CONFIG = None
logging.getLogger().addHandler(logging.NullHandler())
