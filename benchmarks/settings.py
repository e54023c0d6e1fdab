"""The testproject's settings, reduced to what is measured: no middleware, no log output, a separate
database.
"""

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

IDEMPOTENCY = {
    "STORES": {
        "default": {"BACKEND": "django_idempotency.stores.orm.ORMStore"},
        "redis": {
            "BACKEND": "django_idempotency.stores.redis.RedisStore",
            "OPTIONS": {"cache": "redis", "prefix": "bench-served", "timeout": 5},
        },
    }
}

BENCH_NAME = TEST_NAME.replace("test_idempotency", "test_idempotency_bench", 1)
# Connecting is not measured, nor asking whether a connection still works.
DATABASES["default"] |= {
    "CONN_MAX_AGE": None,
    "CONN_HEALTH_CHECKS": False,
    "ATOMIC_REQUESTS": False,
}
if pooled := int(os.environ.get("BENCH_POOL", "0")):  # under ASGI each request has its own thread
    DATABASES["default"] |= {"CONN_MAX_AGE": 0}
    DATABASES["default"]["OPTIONS"] |= {"pool": {"min_size": pooled, "max_size": pooled}}
DATABASES["default"]["TEST"]["NAME"] = (
    BASE_DIR / f"{BENCH_NAME}.sqlite3" if DATABASE == "sqlite" else BENCH_NAME
)

LOGGING_CONFIG = None
logging.getLogger().addHandler(logging.NullHandler())
